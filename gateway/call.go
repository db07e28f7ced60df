package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"

	"polar/llm"
)

// call is the life of a model call. Every call of a known session ends up in
// its log, before the harness sees the end of the answer; one that repeats
// another is given the answer to that.
func (g *Gateway) call(w http.ResponseWriter, r *http.Request, p Protocol) {
	s, refused := g.session(r)
	if refused != nil {
		p.Fail(w, refused)
		return
	}
	c := newCall(g, s, p.Wire(), r.Header)
	ctx, refused := s.enter(r.Context(), c)
	if refused != nil {
		p.Fail(w, refused)
		return
	}
	defer s.leave(c)
	defer c.settle(ctx)
	g.served.Add(1)
	g.inFlight.Add(1)
	defer g.inFlight.Add(-1)

	req, err := g.read(w, r, p.Decode)
	if err == nil && req.CountOnly {
		c.unrecorded = true
		g.count(ctx, w, s, p, req)
		return
	}
	if err == nil {
		if earlier, f := c.begin(&req, r.Header); f != nil {
			c.repeat(ctx, w, p, req, earlier, f)
			return
		}
		c.asked(req)
		req, err = s.prepare(&g.cfg, req)
		c.prepared(req)
	}
	if err != nil {
		p.Fail(w, c.fail(ctx, err))
		return
	}

	// The first event is waited for before anything is written: an error until
	// then is a plain HTTP error.
	next, stop := g.pull(req, c.generate(ctx, req), c.stop)
	defer stop()
	first, err, _ := next()
	if err != nil {
		p.Fail(w, g.explain(err))
		return
	}
	err = p.Reply(w, req, resume(first, next))
	if err == nil || c.turn.leave() { // on to its end, if only for those who joined
		exhaust(next)
	}
	stop()
	c.arrived(err)
}

// repeat gives a call the answer to the one that it repeats.
func (c *call) repeat(ctx context.Context, w http.ResponseWriter, p Protocol, req llm.Request, earlier *turn, f *follower) {
	got := false
	defer func() {
		if err := earlier.part(f, got); err != nil {
			c.s.breakDown(err)
			c.g.log.Error("repeated call not noted", "session", c.record.Session, "call", earlier.id, "error", err)
		}
	}()
	next, stop := c.g.pull(req, earlier.follow(ctx, f), c.stop)
	defer stop()
	first, err, _ := next()
	if err != nil {
		p.Fail(w, c.told(ctx, err))
		return
	}
	got = p.Reply(w, req, resume(first, next)) == nil
}

// pull hands out events one by one. A stream gets a sign of life where the
// engine is silent; an answer in one piece is just waited for.
func (g *Gateway) pull(req llm.Request, events iter.Seq2[llm.Event, error], abort func()) (next func() (llm.Event, error, bool), stop func()) {
	if req.Stream {
		return pullAlive(events, g.cfg.KeepAlive, abort)
	}
	return iter.Pull2(events)
}

// read reads the body, which is bounded, and decodes it.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, decode func(*http.Request, []byte) (llm.Request, error)) (llm.Request, error) {
	tooLarge := llm.Errorf(llm.TooLarge, "the body is larger than %d bytes", g.cfg.MaxBodyBytes)
	if r.ContentLength > g.cfg.MaxBodyBytes {
		return llm.Request{}, tooLarge
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, g.cfg.MaxBodyBytes), r.ContentLength)
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return llm.Request{}, tooLarge
	}
	if err != nil {
		return llm.Request{}, llm.Errorf(llm.BadRequest, "the body was cut off: %v", io.ErrUnexpectedEOF)
	}
	return decode(r, body)
}

// believed is how long a body may claim to be before any of it has come. A
// length that is only claimed is not to cost memory.
const believed = 1 << 20

// readAll reads a body of a length that may be unknown, below 0, into as much
// memory as it takes and no more: it may hold megabytes of images.
func readAll(from io.Reader, length int64) ([]byte, error) {
	var body bytes.Buffer
	if length > believed {
		body.Grow(believed + bytes.MinRead)
		if _, err := body.ReadFrom(io.LimitReader(from, believed)); err != nil {
			return nil, err
		}
		whole := make([]byte, 0, int(length)+bytes.MinRead)
		body = *bytes.NewBuffer(append(whole, body.Bytes()...))
	} else {
		body.Grow(int(max(length, 0)) + bytes.MinRead)
	}
	_, err := body.ReadFrom(from)
	return body.Bytes(), err
}

// resume is a range over first and what next has after it.
func resume(first llm.Event, next func() (llm.Event, error, bool)) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		e, err := first, error(nil)
		for more := true; more; e, err, more = next() {
			if !yield(e, err) {
				return
			}
		}
	}
}

func exhaust(next func() (llm.Event, error, bool)) {
	for more := true; more; {
		_, _, more = next()
	}
}

// explain says what a harness is told of an error.
func (g *Gateway) explain(err error) *llm.Error {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e
	}
	g.log.Error("call broke", "error", err)
	return internalError()
}
