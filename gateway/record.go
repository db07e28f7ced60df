package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"polar"
	"polar/llm"
)

// call is a model call under way and what will be recorded of it. One
// goroutine at a time uses it.
type call struct {
	g      *Gateway
	s      *session
	record polar.Call
	req    llm.Request
	answer llm.Collector
	began  bool // an event came
	stored bool
	left   bool // the harness did not take the answer
}

func newCall(g *Gateway, s *session, wire string, h http.Header) *call {
	return &call{g: g, s: s, record: polar.Call{
		Session: s.rec.Session, Attempt: s.rec.Attempt, Wire: wire, Start: time.Now(),
		Headers: conversationHeaders(h), Version: s.rec.Version,
	}}
}

// asked notes what the harness asked for.
func (c *call) asked(req llm.Request) {
	c.record.ModelAsked = req.Model
	c.record.Stream = req.Stream
}

// imposed notes what the engine is asked for.
func (c *call) imposed(req llm.Request) {
	c.req = req
	c.record.ModelServed = req.Model
	c.record.Sampling = req.Sampling
}

// pass passes events on and keeps a copy. The last event is held back until the
// call is stored, so that a harness which exits on it cannot end its session
// before its final turn is in.
func (c *call) pass(ctx context.Context, events iter.Seq2[llm.Event, error]) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		for e, err := range events {
			if c.stored {
				return // the answer is complete; what breaks now does not matter
			}
			if err == nil {
				err = c.take(e)
			}
			if err != nil {
				yield(llm.Event{}, c.fail(ctx, err))
				return
			}
			if e.Finish != "" {
				if e.Usage, err = c.complete(ctx, e.Usage); err != nil {
					yield(llm.Event{}, err)
					return
				}
			}
			// After the last event the range goes on to its end: the backend then
			// has a connection that it can use again.
			if !yield(e, nil) {
				return
			}
		}
		if !c.stored {
			yield(llm.Event{}, c.fail(ctx, llm.Errorf(llm.EngineFailed, "engine ended the answer without a reason")))
		}
	}
}

// take copies what an event says.
func (c *call) take(e llm.Event) error {
	c.began = true
	if c.record.FirstToken.IsZero() && (len(e.Tokens) > 0 || e.Text != "" || e.Reasoning != "") {
		c.record.FirstToken = time.Now()
	}
	e.Logprobs = nil // the harness's own; the tokens have theirs
	c.answer.Add(e)
	if bound := c.s.rec.Budget.MaxContextTokens; bound > 0 && len(e.PromptIDs) > bound {
		return llm.Errorf(llm.ContextOverflow, "This session's maximum context length is %d tokens. However, the messages resulted in %d tokens.", bound, len(e.PromptIDs))
	}
	return nil
}

// complete stores a call that came to its end. It returns the usage to tell
// the harness, counted here if the engine gave none.
func (c *call) complete(ctx context.Context, given *llm.Usage) (*llm.Usage, error) {
	reply := c.answer.Reply()
	usage := given
	if usage == nil {
		usage = &llm.Usage{PromptTokens: len(reply.PromptIDs), CompletionTokens: len(reply.Tokens)}
	}
	c.record.Finish = reply.Finish
	c.record.Usage = *usage
	c.record.Delivered = true
	c.record.Untrainable = untrainable(reply, given)
	if err := c.store(ctx, reply); err != nil {
		return nil, err
	}
	return usage, nil
}

// untrainable says why the tokens of an answer cannot be trained on.
func untrainable(reply llm.Reply, usage *llm.Usage) string {
	switch {
	case len(reply.PromptIDs) == 0:
		return "no prompt ids"
	case len(reply.Tokens) == 0:
		return "no sampled ids"
	case usage != nil && usage.CompletionTokens != len(reply.Tokens):
		return fmt.Sprintf("ids and usage disagree: %d ids, %d completion tokens", len(reply.Tokens), usage.CompletionTokens)
	}
	missing := 0
	for _, token := range reply.Tokens {
		if !token.HasLogprob() {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Sprintf("missing logprobs for %d of %d tokens", missing, len(reply.Tokens))
	}
	return ""
}

// fail stores a call that failed and says what the harness is told.
func (c *call) fail(ctx context.Context, err error) *llm.Error {
	var told *llm.Error
	if cause := context.Cause(ctx); cause != nil && !errors.As(cause, &told) {
		c.left = true
		told = &llm.Error{Status: statusClientGone, Message: "the client went away"}
	} else if told == nil {
		told = c.g.explain(err)
	}
	if !c.left {
		c.record.Error = &polar.CallError{Kind: told.Kind, Status: told.Status, Message: told.Error()}
	}
	if err := c.storePart(ctx); err != nil {
		return err
	}
	return told
}

// statusClientGone is what nginx calls it; nobody is there to read it.
const statusClientGone = 499

// settle stores a call that was left before its end, whatever the reason.
func (c *call) settle(ctx context.Context) {
	if c.stored {
		return
	}
	if !c.left && ctx.Err() == nil { // a handler panicked
		c.record.Error = &polar.CallError{Kind: "internal", Status: http.StatusInternalServerError, Message: "internal error"}
	}
	_ = c.storePart(ctx) // noted in the session; nobody is left to be told
}

// storePart stores as much of a call as there is.
func (c *call) storePart(ctx context.Context) *llm.Error {
	reply := c.answer.Reply()
	if c.began {
		c.record.Finish = llm.FinishAbort
		c.record.Usage = llm.Usage{PromptTokens: len(reply.PromptIDs), CompletionTokens: len(reply.Tokens)}
	}
	c.record.Delivered = false
	return c.store(ctx, reply)
}

// store puts the call into the log. It is called once for each call.
func (c *call) store(ctx context.Context, reply llm.Reply) *llm.Error {
	c.stored = true
	r := &c.record
	r.Sampled, r.Engine = reply.Tokens, reply.Engine
	r.Tools = c.req.Tools
	r.Messages = messagesJSON(c.req.Messages)
	if c.began {
		r.Reply = reply.Message.AppendJSON(nil, "reasoning_content")
	}
	r.End = time.Now()
	c.s.count(max(len(reply.Tokens), r.Usage.CompletionTokens))
	// A harness that left does not keep its call from being recorded.
	if err := c.s.log.Append(context.WithoutCancel(ctx), r, reply.PromptIDs); err != nil {
		r.Delivered = false
		c.s.breakDown(err)
		c.g.log.Error("call not stored", "session", r.Session, "attempt", r.Attempt, "call", r.ID, "error", err)
		return llm.Errorf(llm.StorageFailed, "the call could not be stored")
	}
	return nil
}

// undelivered notes that the harness did not get the whole answer.
func (c *call) undelivered(reason error) {
	c.left = true
	if !c.stored || !c.record.Delivered {
		return // it is stored as that, or will be
	}
	c.g.log.Debug("answer not delivered", "session", c.record.Session, "call", c.record.ID, "error", reason)
	if err := c.s.log.SetDelivered(c.record.ID, false); err != nil {
		c.s.breakDown(err)
		c.g.log.Error("call not marked as undelivered", "session", c.record.Session, "call", c.record.ID, "error", err)
	}
}

// count adds to what the session has spent.
func (s *session) count(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens += tokens
}

// messagesJSON is each message as it is recorded. Those that came as Chat
// Completions alias the body of the call.
func messagesJSON(messages []llm.Message) []json.RawMessage {
	out := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		out[i] = m.JSON("reasoning_content")
	}
	return out
}

// The bounds of what is recorded of a call's headers.
const (
	maxHeaders     = 32
	maxHeaderBytes = 1024
)

// conversationHeaders picks the headers by which harnesses tell sessions,
// sub-agents and retries apart.
func conversationHeaders(h http.Header) map[string]string {
	var names []string
	for name := range h {
		if tellsConversations(strings.ToLower(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names) // which are left out is not to be chance
	out := make(map[string]string, len(names))
	for _, name := range names[:min(len(names), maxHeaders)] {
		value := h.Get(name)
		out[strings.ToLower(name)] = strings.ToValidUTF8(value[:min(len(value), maxHeaderBytes)], "")
	}
	return out
}

func tellsConversations(name string) bool {
	switch name {
	case "user-agent", "session-id", "session_id", "thread-id", "x-session-id", "x-session-affinity", "x-parent-session-id",
		"x-client-request-id", "x-openai-subagent", "x-stainless-retry-count", "x-app", "originator", "anthropic-beta":
		return true
	}
	return strings.HasPrefix(name, "x-codex-") || strings.HasPrefix(name, "x-claude-code-")
}
