// Package llm is the canonical model call: what every wire format is read into
// and every engine is asked with. It is shaped like Chat Completions, because
// that is what the engines speak, and keeps raw JSON wherever re-encoding could
// change the tokens of a prompt.
package llm

import (
	"encoding/json"

	"polar/rawjson"
)

// Request is one model call as a harness made it.
type Request struct {
	// ID names the answer within its session. The gateway gives it before the
	// answer is written; formats build the ids they show from it.
	ID string
	// Previous is the ID of an earlier answer of the session that this call
	// goes on from: its conversation comes before Messages.
	Previous string
	// Affinity groups calls whose prompts share a history: those with the same
	// value should reach the same engine, which has the history in its cache. The
	// gateway sets it to the session's id; "" groups with nothing.
	Affinity string
	// Model is the name the harness asked for; the gateway may serve another.
	Model    string
	Messages []Message
	// Tools are Chat Completions tool objects, as written.
	Tools []json.RawMessage
	// ToolChoice, ParallelToolCalls and ResponseFormat have the shape they have
	// in Chat Completions; nil means absent.
	ToolChoice        json.RawMessage
	ParallelToolCalls json.RawMessage
	ResponseFormat    json.RawMessage
	Sampling          Sampling
	// TopLogprobs is how many alternatives of each sampled token the harness
	// wants to see beside its logprob; nil means it asked for no logprobs.
	TopLogprobs *int
	// Stream is how the harness wants its answer.
	Stream bool
	// CountOnly says that the harness wants to know how many tokens the prompt
	// has and nothing else: there is no answer and no turn.
	CountOnly bool
	// Extra holds the fields that are not known here, for engines that know them.
	Extra rawjson.Object
	// Reply is what the protocol that decoded the request needs again to write
	// the answer. Nobody else looks at it.
	Reply any
}

// Message is one turn of the conversation.
type Message struct {
	Role string
	// Content is a JSON string, a list of Chat content parts, or nil.
	Content    json.RawMessage
	Reasoning  string
	ToolCalls  []ToolCall
	ToolCallID string
	Name       string
	Extra      rawjson.Object

	// raw is the message as it was written, which saves writing it again, and
	// rawReasoning the name it has its reasoning under.
	raw          json.RawMessage
	rawReasoning string
}

// ToolCall is one call of a tool by the model.
type ToolCall struct {
	ID   string
	Name string
	// Arguments is the text the model wrote, which need not be valid JSON.
	Arguments string
	Extra     rawjson.Object
}

// Sampling says how an answer is sampled. A nil field leaves it to whoever
// comes next: the harness, then the engine.
type Sampling struct {
	Temperature        *float64       `json:"temperature,omitempty"`
	TopP               *float64       `json:"top_p,omitempty"`
	TopK               *int           `json:"top_k,omitempty"`
	MaxTokens          *int           `json:"max_tokens,omitempty"`
	Seed               *int64         `json:"seed,omitempty"`
	Stop               []string       `json:"stop,omitempty"`
	ChatTemplateKwargs rawjson.Object `json:"chat_template_kwargs,omitempty"`
}

// Over returns s with what it leaves open taken from base.
func (s Sampling) Over(base Sampling) Sampling {
	out := Sampling{
		Temperature: either(s.Temperature, base.Temperature),
		TopP:        either(s.TopP, base.TopP),
		TopK:        either(s.TopK, base.TopK),
		MaxTokens:   either(s.MaxTokens, base.MaxTokens),
		Seed:        either(s.Seed, base.Seed),
		Stop:        s.Stop,
	}
	if out.Stop == nil {
		out.Stop = base.Stop
	}
	out.ChatTemplateKwargs = append(out.ChatTemplateKwargs, base.ChatTemplateKwargs...)
	for _, m := range s.ChatTemplateKwargs {
		out.ChatTemplateKwargs.Set(m.Key, m.Value)
	}
	return out
}

func either[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}
