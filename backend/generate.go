package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"time"

	"polar/llm"
	"polar/sse"
)

// drainTimeout is how long the end of a connection is waited for after the end
// of an answer, so that the connection can be used again.
const drainTimeout = time.Second

// errSilent is the cause of a call that ended because the engine said nothing.
var errSilent = errors.New("engine was silent for too long")

func (v *vllm) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		body := appendRequest(nil, req)
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(v.timeout, func() { cancel(errSilent) })
		defer silence.Stop()

		s, first, err := v.open(ctx, body, req.TopLogprobs != nil)
		if err != nil {
			yield(llm.Event{}, v.explain(ctx, err))
			return
		}
		defer s.close()
		for e := first; ; {
			silence.Reset(v.timeout)
			if !yield(e, nil) {
				return
			}
			if e.Finish != "" {
				silence.Reset(drainTimeout)
				s.drain()
				return
			}
			if e, err = s.next(); err != nil {
				yield(llm.Event{}, v.explain(ctx, err))
				return
			}
		}
	}
}

// open asks until an answer begins or there is no use in asking again, and
// returns the stream with its first event read.
func (v *vllm) open(ctx context.Context, body []byte, logprobs bool) (*stream, llm.Event, error) {
	for attempt := 1; ; attempt++ {
		s, first, err := v.try(ctx, body, logprobs)
		if err == nil {
			return s, first, nil
		}
		wait, again := v.waitBefore(attempt+1, err)
		if !again || ctx.Err() != nil {
			return nil, llm.Event{}, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, llm.Event{}, err
		}
	}
}

// maxRetryAfter is the longest Retry-After that is waited for here; a longer
// one is the harness's to decide on.
const maxRetryAfter = 5 * time.Second

func (v *vllm) waitBefore(attempt int, err error) (time.Duration, bool) {
	var f *failure
	if attempt > v.attempts || errors.As(err, &f) && (!f.retry || f.after > maxRetryAfter) {
		return 0, false
	}
	wait := v.backoff << min(attempt-2, 16)
	wait += time.Duration(rand.Int64N(int64(wait)/2 + 1)) // so that many callers do not come back as one
	if f != nil {
		wait = max(wait, f.after)
	}
	return wait, true
}

func (v *vllm) try(ctx context.Context, body []byte, logprobs bool) (*stream, llm.Event, error) {
	resp, err := v.do(ctx, http.MethodPost, "/v1/chat/completions", body) //nolint:bodyclose // the stream closes it
	if err != nil {
		return nil, llm.Event{}, err
	}
	s := &stream{body: resp.Body, events: sse.NewReader(resp.Body, v.events), chunk: chunk{keepLogprobs: logprobs}}
	first, err := s.next()
	if err != nil {
		s.close()
		return nil, llm.Event{}, err
	}
	engine := v.engine
	engine.Model = s.chunk.model
	first.Engine = &engine
	return s, first, nil
}

// do sends a request; an answer that is not 200 is a failure.
func (v *vllm) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "polar")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if v.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+v.apiKey)
	}
	resp, err := v.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		said = nil // the status says enough
	}
	return nil, refused(resp.StatusCode, said, resp.Header.Get("Retry-After"))
}

// explain says in the words of package llm why a call failed. If the caller
// ended it, that is the reason, whatever broke on the way.
func (v *vllm) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return llm.Errorf(llm.EngineTimeout, "engine %s said nothing for %v", v.url, v.timeout)
	} else if cause != nil {
		return cause
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.err
	}
	return llm.Errorf(llm.EngineFailed, "engine %s: %v", v.url, err)
}

// stream is an answer on its way.
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

// drain reads to the end, without which the connection could not be used again.
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
