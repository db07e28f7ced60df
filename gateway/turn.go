package gateway

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"polar"
	"polar/llm"
)

// errClientGone is why a call ended whose every asker went away.
var errClientGone = errors.New("the client went away")

// turn is one answer and those who asked for it: the harness whose call it is,
// and any that repeated the call. It goes on for as long as one of them is
// there, and outlives the call as what a repetition is given.
type turn struct {
	log SessionLog
	// key tells what was asked, token is the caller's own name for the call.
	key   uint64
	token string
	id    polar.CallID
	// forgotten is used by who keeps the turns of a session.
	forgotten bool

	mu     sync.Mutex
	state  turnState
	cancel context.CancelCauseFunc // ends the engine's work
	// answer is what was said so far, until all is said.
	answer llm.Collector
	began  bool
	ended  bool // the last event came; it is being stored
	said   llm.Reply
	stop   string // beside said.Finish
	prompt *polar.Prompt
	failed *llm.Error

	// left says that the first asker is gone, served that it is known whether it
	// was given the answer: one that has all of it may be gone first.
	left, served bool
	followers    []*follower
	// got says that one of them was given all of it.
	got     bool
	retries int
	noted   delivery
}

type turnState byte

const (
	turnRunning turnState = iota
	turnComplete
	turnFailed
)

// delivery is what the log knows of who was given the answer.
type delivery struct {
	delivered bool
	retries   int
}

// follower is a repetition of the call, from when it joins until it parts.
type follower struct {
	events []llm.Event // those it was not given yet
	over   bool        // no more will come
	all    bool        // it has what the last event says, but for the end
	wake   chan struct{}
}

func (f *follower) tell(over bool, e ...llm.Event) {
	f.events, f.over = append(f.events, e...), over
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// add takes in what the engine said. The last event is not told before it is
// stored.
func (t *turn) add(e llm.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = true
	t.answer.Add(e)
	if t.ended = e.Finish != ""; t.ended {
		return
	}
	for _, f := range t.followers {
		f.tell(false, shown(e))
	}
}

// shown is what a follower needs of an event.
func shown(e llm.Event) llm.Event {
	e.Tokens, e.More = nil, false
	return e
}

// reply is the answer as far as it has come.
func (t *turn) reply() llm.Reply {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.answer.Reply()
	r.Message.ToolCalls = slices.Clone(r.Message.ToolCalls) // the next Reply writes to them
	return r
}

// repeated is how often the call was repeated so far.
func (t *turn) repeated() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.retries
}

// complete ends a turn whose call is stored, with its last event.
func (t *turn) complete(said llm.Reply, last llm.Event, record *polar.Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.answer, t.cancel = turnComplete, llm.Collector{}, nil
	t.prompt = record.Prompt
	said.PromptIDs, said.Tokens = nil, nil // the log has them
	t.said, t.stop = said, last.Stop
	t.noted = delivery{delivered: record.Delivered, retries: record.Retries}
	for _, f := range t.followers {
		if f.all {
			f.tell(true, t.ending())
		} else {
			f.tell(true, shown(last))
		}
	}
}

// fail ends a turn that has no answer. Only the first end counts.
func (t *turn) fail(err *llm.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != turnRunning {
		return
	}
	t.state, t.answer, t.cancel, t.failed = turnFailed, llm.Collector{}, nil, err
	for _, f := range t.followers {
		f.tell(true)
	}
}

// leave notes that the first asker is done with the answer or gone, and stops
// the engine if nobody else wants it. It reports whether somebody does.
func (t *turn) leave() (wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	return t.stopUnwanted()
}

func (t *turn) stopUnwanted() (wanted bool) {
	wanted = t.wanted()
	if t.state == turnRunning && !wanted {
		t.cancel(errClientGone)
	}
	return wanted
}

// wanted reports whether somebody is still being given the answer.
func (t *turn) wanted() bool { return !t.left || len(t.followers) > 0 }

// join lets somebody who repeats the call have the answer from its beginning,
// and what is still to come as it comes. It is nil if there is none to be had.
func (t *turn) join() *follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &follower{wake: make(chan struct{}, 1), all: t.ended}
	switch {
	case t.state == turnComplete:
		said := t.said
		said.PromptIDs = t.prompt.IDs()
		f.tell(true, append(beginning(said), t.ending())...)
	case t.state == turnRunning && t.wanted():
		if t.began {
			f.tell(false, beginning(t.answer.Reply())...)
		}
	default:
		return nil
	}
	t.retries++
	t.followers = append(t.followers, f)
	return f
}

// follow is what a follower is given. An error is the last thing.
func (t *turn) follow(ctx context.Context, f *follower) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		for {
			t.mu.Lock()
			events, over, failed := f.events, f.over, t.failed
			f.events = nil
			t.mu.Unlock()
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if over {
				if failed != nil {
					yield(llm.Event{}, failed)
				}
				return
			}
			select {
			case <-f.wake:
			case <-ctx.Done():
				yield(llm.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// part lets a follower go, who was given all of the answer or not.
func (t *turn) part(f *follower, got bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers = slices.DeleteFunc(t.followers, func(other *follower) bool { return other == f })
	t.stopUnwanted()
	return t.note(got)
}

// arrived lets the first asker go.
func (t *turn) arrived(got bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left, t.served = true, true
	return t.note(got)
}

// note brings the log up to date, once it is known whether anybody was given
// the answer.
func (t *turn) note(got bool) error {
	t.got = t.got || got
	now := delivery{delivered: t.got, retries: t.retries}
	if t.state != turnComplete || now == t.noted || !t.got && t.wanted() {
		return nil
	}
	t.noted = now
	return t.log.SetDelivered(t.id, now.delivered, now.retries)
}

func (t *turn) isRunning() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == turnRunning
}

func (t *turn) hasFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == turnFailed
}

// isLost reports whether the first asker went away without the answer.
func (t *turn) isLost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == turnRunning {
		return t.left
	}
	return t.served && !t.got && !t.wanted()
}

// size is about how much memory the answer takes.
func (t *turn) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.said.Message
	n := len(m.Content) + len(m.Reasoning)
	for _, call := range m.ToolCalls {
		n += len(call.ID) + len(call.Name) + len(call.Arguments)
	}
	for _, raw := range t.said.Logprobs {
		n += len(raw)
	}
	return n
}

// beginning is what was said so far, without an end. What there is of
// logprobs comes piece by piece, as it came.
func beginning(said llm.Reply) []llm.Event {
	engine := said.Engine
	first := llm.Event{
		PromptIDs: said.PromptIDs, Engine: &engine,
		Reasoning: said.Message.Reasoning, Text: said.Message.Text(),
	}
	for i, call := range said.Message.ToolCalls {
		first.ToolCalls = append(first.ToolCalls, llm.ToolCallDelta{Index: i, ID: call.ID, Name: call.Name, Arguments: call.Arguments})
	}
	events := []llm.Event{first}
	for i, piece := range said.Logprobs {
		if i > 0 {
			events = append(events, llm.Event{})
		}
		events[i].Logprobs = piece
	}
	return events
}

func (t *turn) ending() llm.Event {
	usage := t.said.Usage
	return llm.Event{Finish: t.said.Finish, Stop: t.stop, Usage: &usage}
}
