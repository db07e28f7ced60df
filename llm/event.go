package llm

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"

	"polar/rawjson"
)

// Event is what an engine said since the event before it. The event with a
// Finish is the last of an answer.
type Event struct {
	// KeepAlive says that nothing came for a while and that there is nothing
	// else in this event: a stream shows a sign of life, all else ignores it.
	KeepAlive bool
	// PromptIDs are the tokens the engine was asked with, on the first event
	// that knows them.
	PromptIDs IDs
	// Tokens were sampled since the event before. They need not line up with
	// the text of the same event.
	Tokens    []Token
	Text      string
	Reasoning string
	ToolCalls []ToolCallDelta
	// Logprobs is the Chat Completions logprobs object of this event, for a
	// harness that asked for it.
	Logprobs json.RawMessage
	Finish   string
	// Stop is the stop string that ended the answer, beside Finish, where the
	// engine says which it was.
	Stop  string
	Usage *Usage
	// Engine says who answered; on the first event.
	Engine *Engine
	// More says that the next event is here already and is not the last: who
	// writes this one to a connection may wait for that before it flushes.
	More bool
}

// The values of Finish, as Chat Completions names them.
const (
	FinishStop      = "stop"
	FinishLength    = "length"
	FinishToolCalls = "tool_calls"
	FinishFilter    = "content_filter"
	// FinishAbort is our own: the answer was cut off before its end.
	FinishAbort = "abort"
)

// Token is one sampled token. A logprob the engine did not give is NaN.
type Token struct {
	ID      int32
	Logprob float32
}

// NoLogprob is the logprob of a token for which the engine gave none.
func NoLogprob() float32 { return float32(math.NaN()) }

// HasLogprob reports whether the engine gave the token's logprob.
func (t Token) HasLogprob() bool { return t.Logprob == t.Logprob }

// ToolCallDelta is a piece of a tool call: the id and name come once, the
// arguments in pieces.
type ToolCallDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
}

// Usage counts the tokens of a call.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	CachedTokens     int `json:"cached_tokens,omitempty"`
}

// Engine describes who answered a call.
type Engine struct {
	// Kind is the engine's plug-in name and URL where it was reached.
	Kind string `json:"kind"`
	URL  string `json:"url"`
	// Model is the name the engine gave itself in its reply.
	Model string `json:"model,omitempty"`
	// LogprobMode says what the logprobs are of: raw or processed logits.
	LogprobMode string `json:"logprob_mode,omitempty"`
}

// Reply is a whole answer.
type Reply struct {
	Message   Message
	PromptIDs IDs
	Tokens    []Token
	Logprobs  []json.RawMessage
	Finish    string
	Usage     Usage
	Engine    Engine
}

// Collect folds a stream into the answer. An error comes with what was said
// before it.
func Collect(events iter.Seq2[Event, error]) (Reply, error) {
	var c Collector
	for e, err := range events {
		if err != nil {
			return c.Reply(), err
		}
		c.Add(e)
	}
	return c.Reply(), nil
}

// Collector folds events into a Reply one at a time. The zero value is ready.
type Collector struct {
	reply     Reply
	text      []byte
	reasoning []byte
	args      [][]byte
}

// Add takes one event in.
func (c *Collector) Add(e Event) {
	if e.PromptIDs != nil {
		c.reply.PromptIDs = e.PromptIDs
	}
	if e.Engine != nil {
		c.reply.Engine = *e.Engine
	}
	c.reply.Tokens = append(c.reply.Tokens, e.Tokens...)
	c.text = append(c.text, e.Text...)
	c.reasoning = append(c.reasoning, e.Reasoning...)
	for _, d := range e.ToolCalls {
		calls := &c.reply.Message.ToolCalls
		for len(*calls) <= d.Index {
			*calls = append(*calls, ToolCall{})
			c.args = append(c.args, nil)
		}
		call := &(*calls)[d.Index]
		call.ID += d.ID
		call.Name += d.Name
		c.args[d.Index] = append(c.args[d.Index], d.Arguments...)
	}
	if e.Logprobs != nil {
		c.reply.Logprobs = append(c.reply.Logprobs, e.Logprobs)
	}
	if e.Usage != nil {
		c.reply.Usage = *e.Usage
	}
	if e.Finish != "" {
		c.reply.Finish = e.Finish
	}
}

// Reply is the answer as far as it has come.
func (c *Collector) Reply() Reply {
	r := c.reply
	r.Message.Role = "assistant"
	if len(c.text) > 0 || len(r.Message.ToolCalls) == 0 {
		r.Message.Content = rawjson.Quote(string(c.text))
	}
	r.Message.Reasoning = string(c.reasoning)
	for i, args := range c.args {
		r.Message.ToolCalls[i].Arguments = string(args)
	}
	return r
}

// IDs is a sequence of token ids that is quick to write and read as JSON.
type IDs []int32

// MarshalJSON writes the ids as an array; nil is an empty one.
func (ids IDs) MarshalJSON() ([]byte, error) {
	return rawjson.AppendInts(make([]byte, 0, 7*len(ids)+2), ids), nil
}

// UnmarshalJSON reads an array of ids; null is nil.
func (ids *IDs) UnmarshalJSON(data []byte) error {
	if rawjson.IsNull(data) {
		*ids = nil
		return nil
	}
	got, err := rawjson.Ints(make([]int32, 0, rawjson.CountElements(data)), data)
	*ids = got
	return err
}

// Logprobs is a sequence of logprobs in which NaN, "not given", is null.
type Logprobs []float32

// MarshalJSON writes the logprobs as an array; nil is null.
func (l Logprobs) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("null"), nil
	}
	b := append(make([]byte, 0, 12*len(l)+2), '[')
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case v != v:
			b = append(b, "null"...)
		case v == 0:
			b = append(b, '0')
		default:
			b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads an array of numbers and nulls.
func (l *Logprobs) UnmarshalJSON(data []byte) error {
	*l = nil
	if rawjson.IsNull(data) {
		return nil
	}
	out := make(Logprobs, 0, rawjson.CountElements(data))
	err := rawjson.EachElement(data, func(value []byte) error {
		if rawjson.IsNull(value) {
			out = append(out, NoLogprob())
			return nil
		}
		f, err := strconv.ParseFloat(string(value), 32)
		if err != nil {
			return fmt.Errorf("a logprob expected: %w", err)
		}
		out = append(out, float32(f))
		return nil
	})
	*l = out
	return err
}
