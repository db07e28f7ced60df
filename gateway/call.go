package gateway

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"net/http"

	"polar/llm"
)

// call is the life of a model call. Every call of a known session ends up in
// its log, before the harness sees the end of the answer.
func (g *Gateway) call(w http.ResponseWriter, r *http.Request, p Protocol) {
	s, refused := g.sessions.find(credential(r))
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

	req, err := g.read(w, r, p)
	if err == nil {
		c.asked(req)
		req, err = s.impose(req, g.cfg.Model)
		c.imposed(req)
	}
	if err != nil {
		p.Fail(w, c.fail(ctx, err))
		return
	}

	// The first event is waited for before anything is written: an error until
	// then is a plain HTTP error.
	next, stop := iter.Pull2(c.pass(ctx, g.cfg.Backend.Generate(ctx, req)))
	defer stop()
	first, err, _ := next()
	if err != nil {
		p.Fail(w, g.explain(err))
		return
	}
	if err := p.Reply(w, req, resume(first, next)); err != nil {
		c.undelivered(err)
	}
}

// read reads the body, which is bounded, and decodes it.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, p Protocol) (llm.Request, error) {
	tooLarge := llm.Errorf(llm.TooLarge, "the body is larger than %d bytes", g.cfg.MaxBodyBytes)
	if r.ContentLength > g.cfg.MaxBodyBytes {
		return llm.Request{}, tooLarge
	}
	var body bytes.Buffer
	// A length that is only claimed is not to cost memory.
	body.Grow(int(min(max(r.ContentLength, 0), 1<<20)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, g.cfg.MaxBodyBytes))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return llm.Request{}, tooLarge
	}
	if err != nil {
		return llm.Request{}, llm.Errorf(llm.BadRequest, "the body was cut off: %v", io.ErrUnexpectedEOF)
	}
	return p.Decode(r, body.Bytes())
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

// explain says what a harness is told of an error.
func (g *Gateway) explain(err error) *llm.Error {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e
	}
	g.log.Error("call broke", "error", err)
	return internalError()
}
