// Package backend asks inference engines and reads their answers with every
// token id and logprob they give. It knows the engines' wires and nothing of
// sessions or of what harnesses speak.
package backend

import (
	"context"
	"iter"
	"strings"

	"polar/llm"
)

// Engine is an inference server that answers model calls.
type Engine interface {
	// Generate asks the engine and yields its answer as it comes. The last event
	// has the Finish and the Usage. An error is the last thing yielded: an
	// *llm.Error, or the cause for which ctx ended. Ending ctx, or the range,
	// closes the connection at once, so that the engine stops its work.
	Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error]
	// Models lists the models the engine serves.
	Models(ctx context.Context) ([]string, error)
	// Probe makes real calls of one token to see what the engine returns.
	Probe(ctx context.Context) (Probe, error)
	// Health is nil if the engine says it can serve.
	Health(ctx context.Context) error
	// Close lets go of the connections that are not in use.
	Close() error
}

// TokenCounter is an Engine that says how long a prompt is without answering
// it. Where the server cannot, the error is errors.ErrUnsupported.
type TokenCounter interface {
	CountTokens(ctx context.Context, req llm.Request) (int, error)
}

// Probe is what an engine turned out to be and to return.
type Probe struct {
	// Engine is the kind of the engine and URL where it was reached.
	Engine string `json:"engine"`
	URL    string `json:"url,omitempty"`
	// Version is what the server says of itself; "" if it does not.
	Version string `json:"version,omitempty"`
	Model   string `json:"model"`
	// MaxContext is the longest context in tokens; 0 if the server does not say.
	MaxContext int  `json:"max_context,omitempty"`
	PromptIDs  bool `json:"prompt_ids"`
	SampledIDs bool `json:"sampled_ids"`
	Logprobs   bool `json:"logprobs"`
	// StreamsIDs says whether ids come while the answer does.
	StreamsIDs StreamsIDs `json:"streams_ids"`
	// Tokenizer says whether the server counts the tokens of a conversation.
	Tokenizer bool `json:"tokenizer"`
	// Style is the way chosen of asking the engine.
	Style string `json:"style"`
	// Endpoints are the servers behind a pool or a router, each for itself.
	Endpoints []Probe `json:"endpoints,omitempty"`
	// Error says why one of several endpoints could not be probed.
	Error string `json:"error,omitempty"`
}

// StreamsIDs says when token ids come.
type StreamsIDs string

// When token ids come: with the text, with the end of the streamed text, or
// not while anything streams: the answer comes in one piece, or has no ids.
const (
	StreamsYes   StreamsIDs = "yes"
	StreamsAtEnd StreamsIDs = "at_end"
	StreamsNo    StreamsIDs = "no"
)

// Missing names what training needs and the engine did not return; empty if it
// returned everything.
func (p Probe) Missing() string {
	var missing []string
	for _, part := range []struct {
		name  string
		there bool
	}{{"prompt ids", p.PromptIDs}, {"sampled ids", p.SampledIDs}, {"logprobs", p.Logprobs}} {
		if !part.there {
			missing = append(missing, part.name)
		}
	}
	return strings.Join(missing, ", ")
}

// returned notes what an answer had.
func (p *Probe) returned(reply llm.Reply) {
	p.PromptIDs, p.SampledIDs, p.Logprobs = len(reply.PromptIDs) > 0, len(reply.Tokens) > 0, len(reply.Tokens) > 0
	for _, token := range reply.Tokens {
		p.Logprobs = p.Logprobs && token.HasLogprob()
	}
}

// together is what can be counted on whichever of the endpoints answers.
func together(kind, url string, endpoints []Probe) Probe {
	p := Probe{Engine: kind, URL: url, Endpoints: endpoints}
	first := true
	for _, e := range endpoints {
		if e.Error != "" {
			continue
		}
		if first {
			first = false
			p.Version, p.Model, p.MaxContext, p.StreamsIDs, p.Style = e.Version, e.Model, e.MaxContext, e.StreamsIDs, e.Style
			p.PromptIDs, p.SampledIDs, p.Logprobs, p.Tokenizer = e.PromptIDs, e.SampledIDs, e.Logprobs, e.Tokenizer
			continue
		}
		p.PromptIDs, p.SampledIDs = p.PromptIDs && e.PromptIDs, p.SampledIDs && e.SampledIDs
		p.Logprobs, p.Tokenizer = p.Logprobs && e.Logprobs, p.Tokenizer && e.Tokenizer
		if e.MaxContext > 0 && (p.MaxContext == 0 || e.MaxContext < p.MaxContext) {
			p.MaxContext = e.MaxContext
		}
		if e.StreamsIDs != p.StreamsIDs {
			p.StreamsIDs = StreamsNo
		}
		for _, both := range []struct {
			all   *string
			other string
		}{{&p.Version, e.Version}, {&p.Style, e.Style}} {
			if *both.all != both.other {
				*both.all = "mixed"
			}
		}
	}
	return p
}
