package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"polar/llm"
	"polar/sse"
)

// openStream asks for a streamed chat and reads its first event. With late,
// ids and logprobs are put together at the end, when all are there: until then
// the engine tells only some of them, or not which belong to each other.
func (c *client) openStream(ctx context.Context, b *body, engine llm.Engine, logprobs, late bool) (reader, llm.Event, error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/chat/completions", b) //nolint:bodyclose // the stream closes it
	if err != nil {
		return nil, llm.Event{}, err
	}
	s := &stream{
		body: resp.Body, events: sse.NewReader(resp.Body, c.events),
		chunk: chunk{keepLogprobs: logprobs, late: late},
	}
	first, err := s.next()
	if err != nil {
		s.close()
		return nil, llm.Event{}, err
	}
	engine.Model = s.chunk.model
	first.Engine = &engine
	return s, first, nil
}

// stream is a streamed chat.
type stream struct {
	body   io.ReadCloser
	events *sse.Reader
	chunk  chunk
	usage  *llm.Usage
	// last is the event with the Finish. It waits for the usage, which comes
	// after it.
	last    llm.Event
	aborted string
	ahead   lookahead
}

// lookahead is what was read before it was asked for.
type lookahead struct {
	event llm.Event
	there bool
	err   error
}

func (s *stream) close() { _ = s.body.Close() }

func (s *stream) drain() {
	for {
		if _, err := s.events.Next(); err != nil {
			return
		}
	}
}

// next returns the next event that says something. It looks ahead at what has
// come already, and never waits for that.
func (s *stream) next() (llm.Event, error) {
	e, ok, err := s.ahead.event, s.ahead.there, s.ahead.err
	s.ahead = lookahead{}
	for !ok && err == nil {
		e, ok, err = s.step()
	}
	if err != nil || e.Finish != "" {
		return e, err
	}
	a := &s.ahead
	for !a.there && a.err == nil && s.events.Buffered() {
		a.event, a.there, a.err = s.step()
	}
	e.More = a.there && a.event.Finish == ""
	return e, nil
}

// step reads one event of the wire and reports whether there is something in
// it to pass on.
func (s *stream) step() (llm.Event, bool, error) {
	sent, err := s.events.Next()
	if err != nil && s.last.Finish != "" {
		// What was sampled counts, though nobody knows whether it is all.
		e := s.last
		s.last, e.Finish = llm.Event{}, ""
		return e, true, nil
	}
	if errors.Is(err, io.EOF) {
		return llm.Event{}, false, s.cut()
	}
	if err != nil {
		return llm.Event{}, false, fmt.Errorf("engine cut the stream: %w", err)
	}
	if string(sent.Data) == "[DONE]" {
		if s.last.Finish == "" {
			return llm.Event{}, false, s.cut()
		}
		s.last.Usage = s.usage
		if s.chunk.late {
			s.last.Tokens = s.chunk.tokens()
		}
		return s.last, true, nil
	}
	if err := s.chunk.parse(sent.Data); err != nil {
		return llm.Event{}, false, err
	}
	e := s.chunk.event
	if e.Usage != nil {
		s.usage, e.Usage = e.Usage, nil
	}
	if e.Finish == "abort" || e.Finish == "error" {
		// The engine gave up: it was paused, or something in it broke.
		s.aborted, e.Finish = e.Finish, ""
	}
	if s.last.Finish != "" || e.Finish != "" {
		join(&s.last, e)
		return llm.Event{}, false, nil
	}
	return e, !isEmpty(e), nil
}

func (s *stream) cut() error {
	if s.aborted != "" {
		return fmt.Errorf("engine ended the answer with %q", s.aborted)
	}
	return errors.New("engine cut the stream")
}

func join(e *llm.Event, more llm.Event) {
	if e.Finish == "" {
		*e = more
		return
	}
	if e.PromptIDs == nil {
		e.PromptIDs = more.PromptIDs
	}
	e.Tokens = append(e.Tokens, more.Tokens...)
	e.Text += more.Text
	e.Reasoning += more.Reasoning
	e.ToolCalls = append(e.ToolCalls, more.ToolCalls...)
	if e.Logprobs == nil {
		e.Logprobs = more.Logprobs
	}
}

func isEmpty(e llm.Event) bool {
	return e.PromptIDs == nil && len(e.Tokens) == 0 && e.Text == "" && e.Reasoning == "" && len(e.ToolCalls) == 0 && e.Logprobs == nil
}
