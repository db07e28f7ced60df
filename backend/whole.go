package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"polar/llm"
)

// openWhole asks for a chat in one piece and makes the events of it that a
// stream would have had.
func (c *client) openWhole(ctx context.Context, b *body, engine llm.Engine, logprobs bool) (reader, llm.Event, error) {
	answer, err := c.ask(ctx, http.MethodPost, "/v1/chat/completions", b, c.events.MaxEventBytes)
	if err != nil {
		return nil, llm.Event{}, err
	}
	said := chunk{keepLogprobs: logprobs}
	if err := said.parse(answer); err != nil {
		return nil, llm.Event{}, err
	}
	e := said.event
	switch e.Finish {
	case "abort", "error": // it was paused, or something in it broke
		return nil, llm.Event{}, fmt.Errorf("engine ended the answer with %q", e.Finish)
	case "":
		return nil, llm.Event{}, errors.New("engine's answer has no end")
	}
	engine.Model = said.model
	e.Engine = &engine
	r := &replay{events: split(e)}
	first, err := r.next()
	return r, first, err
}

// split makes the events of a stream of an event that has everything. The
// tokens come first: they were sampled, whoever leaves before the end.
func split(e llm.Event) []llm.Event {
	events := []llm.Event{{PromptIDs: e.PromptIDs, Tokens: e.Tokens, Engine: e.Engine}}
	if e.Reasoning != "" {
		events = append(events, llm.Event{Reasoning: e.Reasoning})
	}
	if e.Text != "" {
		events = append(events, llm.Event{Text: e.Text})
	}
	if len(e.ToolCalls) > 0 {
		events = append(events, llm.Event{ToolCalls: e.ToolCalls})
	}
	if len(events) > 1 {
		events[1].Logprobs, e.Logprobs = e.Logprobs, nil
	}
	for i := range events[:len(events)-1] {
		events[i].More = true
	}
	return append(events, llm.Event{Logprobs: e.Logprobs, Finish: e.Finish, Stop: e.Stop, Usage: e.Usage})
}

// replay is a reader of events that are all there.
type replay struct{ events []llm.Event }

func (r *replay) next() (llm.Event, error) {
	e := r.events[0] // the last has a Finish, after which nobody asks
	r.events = r.events[1:]
	return e, nil
}

func (r *replay) drain() {}
func (r *replay) close() {}
