package polar

import (
	"encoding/json"
	"time"

	"polar/llm"
)

// CallID names a model call within its session.
type CallID string

// Call is one model call as it was recorded. Large parts are kept once: a
// prompt and its messages say only what they add to an earlier call's.
type Call struct {
	ID      CallID    `json:"call_id"`
	Session SessionID `json:"session_id"`
	Attempt int       `json:"attempt"`
	// Wire is the format the harness spoke.
	Wire       string    `json:"wire"`
	Start      time.Time `json:"start"`
	FirstToken time.Time `json:"first_token,omitzero"`
	End        time.Time `json:"end"`
	Stream     bool      `json:"stream,omitempty"`

	ModelAsked  string            `json:"model_asked,omitempty"`
	ModelServed string            `json:"model_served,omitempty"`
	Messages    []json.RawMessage `json:"messages"`
	Tools       []json.RawMessage `json:"tools,omitempty"`
	// Sampling is what the engine was asked with, after the task's was imposed.
	Sampling llm.Sampling `json:"sampling,omitzero"`
	// Headers are those by which harnesses tell conversations apart. They are
	// recorded and never trusted.
	Headers map[string]string `json:"headers,omitempty"`

	Prompt  *Prompt     `json:"-"`
	Sampled []llm.Token `json:"-"`
	// Reply is the answer as the engine parsed it.
	Reply   json.RawMessage `json:"reply,omitempty"`
	Finish  string          `json:"finish,omitempty"`
	Usage   llm.Usage       `json:"usage"`
	Engine  llm.Engine      `json:"engine,omitzero"`
	Version string          `json:"policy_version,omitempty"`

	// Delivered says that the whole answer was handed to the harness. Tokens of
	// a call that was not are abandoned: counted, never trained on.
	Delivered bool `json:"delivered"`
	// Retries counts the repetitions of the call that were given this answer
	// and are no calls of their own.
	Retries int `json:"retries,omitempty"`
	// HeldMS is how long the call waited while inference was paused.
	HeldMS int64 `json:"held_ms,omitempty"`
	// Untrainable says why the tokens cannot be trained on; empty if they can.
	Untrainable string     `json:"untrainable,omitempty"`
	Error       *CallError `json:"error,omitempty"`
}

// CallError is how a call failed.
type CallError struct {
	Kind    llm.ErrorKind `json:"kind"`
	Status  int           `json:"status"`
	Message string        `json:"message"`
}

// Prompt is the tokens of a prompt, kept as what it adds to an earlier one, so
// that a conversation costs its length and not its length times its turns. It
// does not change once made.
type Prompt struct {
	base *Prompt
	keep int
	add  llm.IDs
}

// NewPrompt makes a prompt of the first keep tokens of base, which may be nil,
// and add. It keeps add, which must not change afterwards.
func NewPrompt(base *Prompt, keep int, add llm.IDs) *Prompt {
	if base == nil || keep == 0 {
		return &Prompt{add: add}
	}
	if keep > base.Len() {
		panic("polar: a prompt keeps more than its base has")
	}
	for keep <= base.keep { // the tokens kept are all of base's own base
		base = base.base
	}
	return &Prompt{base: base, keep: keep, add: add}
}

// Len is the number of tokens.
func (p *Prompt) Len() int {
	if p == nil {
		return 0
	}
	return p.keep + len(p.add)
}

// Base is the earlier prompt and how many of its tokens this one begins with;
// nil and 0 for one that stands alone.
func (p *Prompt) Base() (*Prompt, int) { return p.base, p.keep }

// Added are the tokens after those taken from the base. They must not be changed.
func (p *Prompt) Added() llm.IDs { return p.add }

// IDs writes the tokens out. Each call makes a new slice.
func (p *Prompt) IDs() llm.IDs {
	if p == nil {
		return nil
	}
	out := make(llm.IDs, p.Len())
	for end := len(out); ; p = p.base {
		if end > p.keep {
			copy(out[p.keep:end], p.add)
			end = p.keep
		}
		if p.base == nil {
			return out
		}
	}
}
