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
// goroutine at a time uses it; what others may look at is in its turn.
type call struct {
	g      *Gateway
	s      *session
	turn   *turn
	record polar.Call
	req    llm.Request
	cancel context.CancelCauseFunc
	// forgetCaller ends the watch for the caller's leaving.
	forgetCaller func() bool
	unrecorded   bool // it is no turn: it repeats one, or only counts tokens
	began        bool // an event came
	stored       bool
	left         bool // the harness did not take the answer
}

func newCall(g *Gateway, s *session, wire string, h http.Header) *call {
	return &call{g: g, s: s, turn: &turn{log: s.log}, record: polar.Call{
		Session: s.rec.Session, Attempt: s.rec.Attempt, Wire: wire, Start: time.Now(),
		Headers: conversationHeaders(h), Version: s.rec.Version,
	}}
}

// begin gives the call its number, unless it only repeats an earlier one: then
// it returns whose answer it is to be given. The request learns its id.
func (c *call) begin(req *llm.Request, h http.Header) (*turn, *follower) {
	c.turn.key, c.turn.token = fingerprint(c.g.seed, c.record.Wire, req), retryToken(h)
	earlier, f := c.s.recent.begin(c.turn, isRetry(h), func() polar.CallID {
		c.record.ID = c.s.nextID()
		return c.record.ID
	})
	c.unrecorded = f != nil
	req.ID = string(earlier.id)
	req.Affinity = string(c.record.Session)
	return earlier, f
}

// asked notes what the harness asked for.
func (c *call) asked(req llm.Request) {
	c.record.ModelAsked = req.Model
	c.record.Stream = req.Stream
}

// prepared notes what the engine is asked for.
func (c *call) prepared(req llm.Request) {
	c.req = req
	c.record.ModelServed = req.Model
	c.record.Sampling = req.Sampling
}

// errStopped is why a call ended whose handler had enough of it.
var errStopped = errors.New("the call was stopped")

// stop ends the engine's work.
func (c *call) stop() { c.cancel(errStopped) }

// generate asks the engine, once it may be asked, and passes its events on and
// keeps a copy. The last event is held back until the call is stored, so that
// a harness which exits on it cannot end its session before its final turn is
// in.
func (c *call) generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		broke := func(err error) {
			if !errors.Is(context.Cause(ctx), errStopped) { // else nobody listens, and settle stores it
				yield(llm.Event{}, c.fail(ctx, err))
			}
		}
		held, version, err := c.g.gate.enter(ctx, &c.s.held)
		c.record.HeldMS = held.Milliseconds()
		if err != nil {
			broke(err)
			return
		}
		defer c.g.gate.leave()
		if version != "" {
			c.record.Version = version
		}
		for e, err := range c.g.cfg.Backend.Generate(ctx, req) {
			if c.stored {
				return // the answer is complete; what breaks now does not matter
			}
			if err == nil {
				e, err = c.take(ctx, e)
			}
			if err != nil {
				broke(err)
				return
			}
			// After the last event the range goes on to its end: the backend then
			// has a connection that it can use again.
			if !yield(e, nil) {
				return
			}
		}
		if !c.stored {
			broke(llm.Errorf(llm.EngineFailed, "engine ended the answer without a reason"))
		}
	}
}

// take copies what an event says and stores the call with the last. It returns
// the event as the harness is to see it.
func (c *call) take(ctx context.Context, e llm.Event) (llm.Event, error) {
	if e.KeepAlive {
		return e, nil
	}
	c.began = true
	if c.record.FirstToken.IsZero() && (len(e.Tokens) > 0 || e.Text != "" || e.Reasoning != "") {
		c.record.FirstToken = time.Now()
	}
	c.turn.add(e)
	if bound := c.s.rec.Budget.MaxContextTokens; bound > 0 && len(e.PromptIDs) > bound {
		return e, llm.Errorf(llm.ContextOverflow, "This session's maximum context length is %d tokens. However, the messages resulted in %d tokens.", bound, len(e.PromptIDs))
	}
	if e.Finish == "" {
		return e, nil
	}
	return c.complete(ctx, e)
}

// complete stores a call that came to its end. The harness is told the usage
// that is counted here if the engine gave none.
func (c *call) complete(ctx context.Context, last llm.Event) (llm.Event, error) {
	reply := c.turn.reply()
	given := last.Usage
	if given == nil {
		last.Usage = &llm.Usage{PromptTokens: len(reply.PromptIDs), CompletionTokens: len(reply.Tokens)}
	}
	reply.Usage = *last.Usage
	c.record.Finish = reply.Finish
	c.record.Usage = reply.Usage
	c.record.Delivered = true
	c.record.Untrainable = untrainable(reply, given)
	if err := c.store(ctx, reply); err != nil {
		return last, err
	}
	c.turn.complete(reply, last, &c.record)
	return last, nil
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
	return ""
}

// fail stores a call that failed and says what the harness is told.
func (c *call) fail(ctx context.Context, err error) *llm.Error {
	told := c.told(ctx, err)
	if !c.stored {
		if !c.left {
			c.record.Error = &polar.CallError{Kind: told.Kind, Status: told.Status, Message: told.Error()}
		}
		if err := c.storePart(ctx); err != nil {
			told = err
		}
	}
	c.turn.fail(told)
	return told
}

// told is what the harness is told of an error. Why the call was ended comes
// before what broke by that.
func (c *call) told(ctx context.Context, err error) *llm.Error {
	cause := context.Cause(ctx)
	if told, ok := errors.AsType[*llm.Error](cause); ok {
		return told
	}
	if cause != nil {
		c.left = true
		return &llm.Error{Status: statusClientGone, Message: errClientGone.Error()}
	}
	return c.g.explain(err)
}

// statusClientGone is what nginx calls it; nobody is there to read it.
const statusClientGone = 499

// settle stores a call that was left before its end, whatever the reason.
func (c *call) settle(ctx context.Context) {
	if c.unrecorded || c.stored {
		return
	}
	told := internalError()
	if cause := context.Cause(ctx); !c.left && (cause == nil || errors.Is(cause, errStopped)) { // a handler panicked
		c.record.Error = &polar.CallError{Kind: "internal", Status: told.Status, Message: told.Message}
	}
	_ = c.storePart(ctx) // noted in the session; nobody is left to be told
	c.turn.fail(told)
}

// storePart stores as much of a call as there is.
func (c *call) storePart(ctx context.Context) *llm.Error {
	reply := c.turn.reply()
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
	if r.ID == "" { // it failed before it was understood
		r.ID = c.s.nextID()
	}
	r.Retries = c.turn.repeated()
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

// arrived notes whether the harness was given the whole answer.
func (c *call) arrived(reason error) {
	c.left = reason != nil
	if c.left {
		c.g.log.Debug("answer not delivered", "session", c.record.Session, "call", c.record.ID, "error", reason)
	}
	if err := c.turn.arrived(!c.left); err != nil {
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
