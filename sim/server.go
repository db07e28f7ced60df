// Package sim is a simulated inference server. It speaks vLLM's or SGLang's wire
// with token ids and logprobs, samples from a policy of rules instead of a
// model, and goes wrong on purpose where it is told to. Equal seeds and equal
// requests give equal answers.
package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"polar/rawjson"
	"polar/sse"
)

// Server is a simulated inference server. It is ready when made, holds nothing
// that needs closing and may be used by many goroutines.
type Server struct {
	config    Config
	mux       *http.ServeMux
	generator *generator
	faults    *faults
	calls     *calls
	started   int64
}

// New makes a server, or says what is wrong with its configuration.
func New(c Config) (*Server, error) {
	own, err := c.policy()
	if err != nil {
		return nil, err
	}
	last, err := builtin()
	if err != nil {
		return nil, err
	}
	if c.ContextLimit == 0 {
		c.ContextLimit = 1 << 30 // more than any memory holds
	}
	s := &Server{
		config: c,
		mux:    http.NewServeMux(),
		generator: &generator{
			template:        template{stripReasoning: c.StripReasoning, parseSpecial: c.ParseSpecial, imageTokens: c.ImageTokens},
			policy:          policy{rules: append(own.rules, last.rules...)},
			successRate:     c.SuccessRate,
			seed:            mix(c.Seed, 0),
			noncanonical:    c.Noncanonical,
			missingLogprobs: c.MissingLogprobs,
			seen:            map[uint64]uint64{},
		},
		faults:  &faults{seed: c.Seed, list: c.Faults, times: make([]int, len(c.Faults)), ruled: map[*Fault]int{}},
		calls:   newCalls(c.KeepCalls, c.Engine),
		started: time.Now().Unix(),
	}
	if c.CacheReport {
		s.generator.cache = newCache()
	}
	s.mux.HandleFunc("POST /v1/chat/completions", s.chat)
	s.mux.HandleFunc("POST /tokenize", s.tokenize)
	s.mux.HandleFunc("POST /detokenize", s.detokenize)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	if c.Engine == EngineSGLang {
		s.sglangRoutes()
	} else {
		s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, []byte(`{"version":"`+wireVersion+`"}`))
		})
	}
	s.mux.HandleFunc("GET /sim/calls", func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(map[string]any{"calls": s.Calls()})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		writeJSON(w, http.StatusOK, body)
	})
	return s, nil
}

// wireVersion is the vLLM release whose wire is spoken.
const wireVersion = "0.28.0+polar.sim"

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Calls are the last model calls, oldest first. A call that has ended is
// recorded so before its client can see the end.
func (s *Server) Calls() []Recorded { return s.calls.list() }

// chat is a call of /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	s.call(w, r, "chatcmpl-sim-", func(body []byte) (*chatRequest, []int32, error) {
		req, err := s.decodeChat(body)
		if err != nil {
			return nil, nil, err
		}
		if len(req.messages) == 0 {
			return nil, nil, badRequest("messages", "messages: missing")
		}
		return req, s.generator.template.render(req.conversation), nil
	})
}

// call is the life of one model call. read makes a request and its prompt of
// the body.
func (s *Server) call(w http.ResponseWriter, r *http.Request, id string, read func(body []byte) (*chatRequest, []int32, error)) {
	body, err := s.body(w, r)
	n, fault := s.faults.next()
	rec := s.calls.begin(n, id+strconv.Itoa(n))
	if err == nil {
		err = fault.strike(w, rec)
	}
	if err != nil {
		rec.refuse(w, err)
		return
	}
	req, prompt, err := read(body)
	if err == nil && s.config.StrictModel && req.model != s.config.Model {
		err = &apiError{
			status: http.StatusNotFound, kind: "NotFoundError", param: "model",
			message: fmt.Sprintf("The model `%s` does not exist.", req.model),
		}
	}
	if err == nil {
		err = s.fit(req, len(prompt), fault)
	}
	if err != nil {
		rec.refuse(w, err)
		return
	}
	gen := s.generator.generate(req.conversation, prompt, req.options)
	if own := s.faults.ofRule(gen.fault); fault == nil && own != nil {
		fault = own
		if err = fault.strike(w, rec); err == nil {
			err = s.fit(req, len(prompt), fault)
		}
		if err != nil {
			rec.refuse(w, err)
			return
		}
	}
	rec.sampled(req.stream, prompt, &gen)
	name := req.model
	if name == "" {
		name = s.config.Model
	}
	a := answering{
		prompt: prompt, gen: &gen, fault: fault, record: rec,
		reply: s.format(req, &gen, rec.id, name),
		pace:  newPace(s.config, fault),
		chunk: s.config.ChunkTokens,
		parse: parser{raw: req.raw, special: req.special},
	}
	if req.stream {
		err = a.stream(r.Context(), w)
	} else {
		err = a.whole(r.Context(), w)
	}
	if err != nil { // nothing but the client's leaving goes wrong here
		rec.end(EndAborted, a.sent, a.text)
	}
}

// strike breaks the connection or makes the refusal, if the fault is one that
// comes before anything is said.
func (f *Fault) strike(w http.ResponseWriter, rec *recorder) error {
	switch {
	case f.is(FaultDrop):
		rec.end(EndDropped, 0, nil)
		breakConnection()
	case f.is(FaultStatus):
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		return &apiError{status: f.Status, kind: "InternalServerError", message: "simulated fault"}
	}
	return nil
}

// format writes one answer in a wire's way.
type format interface {
	// first writes what a stream begins with.
	first(out *stream, prompt []int32)
	// chunk writes what came since the chunk before.
	chunk(out *stream, ids []int32, logprobs []float32, d *delta, last bool)
	// rest writes what follows the last chunk, up to the mark of the end.
	rest(out *stream, prompt []int32)
	// whole appends the answer in one piece. The calls of d are complete.
	whole(dst []byte, prompt []int32, d *delta) []byte
}

func (s *Server) format(req *chatRequest, gen *generation, id, model string) format {
	now := time.Now().Unix()
	switch {
	case req.continues:
		return &continuationWriter{config: s.config, req: req, gen: gen, id: id}
	case s.config.Engine == EngineSGLang:
		return newSGLangWriter(s.config, req, gen, id, model, now)
	}
	return newReplyWriter(s.config, req, gen, id, model, now)
}

func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := s.config.MaxBodyBytes
	src := http.MaxBytesReader(w, r.Body, limit)
	buf := make([]byte, 0, min(max(r.ContentLength+1, 512), limit))
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		var large *http.MaxBytesError
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case errors.As(err, &large):
			return nil, &apiError{status: http.StatusRequestEntityTooLarge, kind: "BadRequestError", message: fmt.Sprintf("the body is larger than %d bytes", limit)}
		case err != nil:
			return nil, badRequest("", "read body: %v", err)
		}
	}
}

// answering is one answer on its way to the client.
type answering struct {
	prompt []int32
	gen    *generation
	fault  *Fault
	record *recorder
	reply  format
	pace   pace
	parse  parser
	chunk  int
	sent   int // tokens
	text   []byte
}

// stream sends the answer piece by piece. An error means that the client left.
func (a *answering) stream(ctx context.Context, w http.ResponseWriter) error {
	out := &stream{sse: sse.NewWriter(w)}
	if err := a.pace.wait(ctx, out, 0); err != nil {
		return err
	}
	a.reply.first(out, a.prompt)
	breaks := a.breaksAfter()
	for r := (reader{gen: a.gen, parser: a.parse}); !r.done(); {
		n := a.chunk
		if breaks >= 0 {
			n = min(n, breaks-r.next)
		}
		if n == 0 {
			if err := a.interrupt(ctx, out); err != nil {
				return err
			}
			breaks = -1
			continue
		}
		if err := a.pace.wait(ctx, out, r.next+n); err != nil {
			return err
		}
		ids, logprobs, d := r.read(n)
		a.reply.chunk(out, ids, logprobs, d, r.done())
		a.sent, a.text = r.next, append(a.text, d.text...)
		if !out.full() {
			continue
		}
		if err := errors.Join(out.flush(), ctx.Err()); err != nil {
			return err
		}
	}
	a.reply.rest(out, a.prompt)
	out.add(append(out.take(), "[DONE]"...))
	a.record.end(EndFinished, a.sent, a.text)
	return errors.Join(out.flush(), ctx.Err())
}

// whole sends the answer in one piece once it is complete. An error means that
// the client left.
func (a *answering) whole(ctx context.Context, w http.ResponseWriter) error {
	if a.fault.is(FaultStall) {
		if err := a.interrupt(ctx, nil); err != nil {
			return err
		}
	}
	if err := a.pace.wait(ctx, nil, len(a.gen.tokens)); err != nil {
		return err
	}
	r := reader{gen: a.gen, parser: a.parse}
	_, _, d := r.read(len(a.gen.tokens))
	body := a.reply.whole(make([]byte, 0, 8*len(a.prompt)+128*len(a.gen.tokens)), a.prompt, d)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if a.fault.is(FaultCut) {
		a.record.end(EndCut, 0, nil)
		writeJSON(w, http.StatusOK, body[:len(body)/2])
		_ = http.NewResponseController(w).Flush() // it is about to break anyway
		breakConnection()
	}
	a.record.end(EndFinished, len(a.gen.tokens), d.text)
	writeJSON(w, http.StatusOK, body)
	return ctx.Err()
}

// breaksAfter is how many tokens a fault lets through, or -1. It always holds
// back the last one, so that a short answer does not escape it.
func (a *answering) breaksAfter() int {
	if a.fault.is(FaultCut) || a.fault.is(FaultStall) {
		return min(a.fault.AfterTokens, len(a.gen.tokens)-1)
	}
	return -1
}

// interrupt breaks the connection or waits, as the fault says.
func (a *answering) interrupt(ctx context.Context, out *stream) error {
	if a.fault.is(FaultCut) {
		a.record.end(EndCut, a.sent, a.text)
	}
	if out != nil {
		if err := out.flush(); err != nil {
			return err
		}
	}
	if a.fault.is(FaultCut) {
		breakConnection()
	}
	if a.fault.Delay > 0 {
		return sleep(ctx, a.fault.Delay)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	name := rawjson.Quote(s.config.Model)
	writeJSON(w, http.StatusOK, fmt.Appendf(nil,
		`{"object":"list","data":[{"id":%s,"object":"model","created":%d,"owned_by":"%s","root":%s,"parent":null,"max_model_len":%d}]}`,
		name, s.started, s.config.Engine, name, s.config.ContextLimit))
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.body(w, r)
	var req tokenizeRequest
	if err == nil {
		req, err = s.decodeTokenize(body)
	}
	var ids []int32
	switch {
	case err != nil:
	case req.chat != nil:
		ids = s.generator.template.render(req.chat.conversation)
	case req.prompt != nil: // as tokenizers do by default, special tokens in a prompt are read
		ids = EncodeSpecial(nil, *req.prompt)
	case !s.tokenizesChats():
		err = badRequest("prompt", "prompt: Field required")
	default:
		err = badRequest("prompt", "give prompt or messages")
	}
	if err != nil {
		asRefusal(err).write(w, s.config.Engine)
		return
	}
	b := fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":`, len(ids), s.config.ContextLimit)
	b = rawjson.AppendInts(b, ids)
	if s.config.Engine == EngineSGLang {
		writeJSON(w, http.StatusOK, append(b, '}'))
		return
	}
	b = append(b, `,"token_strs":`...)
	if !req.strings {
		writeJSON(w, http.StatusOK, append(b, "null}"...))
		return
	}
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, string(appendToken(nil, id)))
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.body(w, r)
	var req tokenizeRequest
	if err == nil {
		req, err = s.decodeTokenize(body)
	}
	if err == nil && req.tokens == nil {
		err = badRequest("tokens", "tokens: missing")
	}
	for _, id := range req.tokens {
		if err == nil && !IsToken(id) {
			err = badRequest("tokens", "tokens: %d is not in the vocabulary", id)
		}
	}
	if err != nil {
		asRefusal(err).write(w, s.config.Engine)
		return
	}
	name := "prompt"
	if s.config.Engine == EngineSGLang {
		name = "text"
	}
	b := append(rawjson.AppendString([]byte{'{'}, name), ':')
	b = rawjson.AppendString(b, string(Decode(req.tokens)))
	writeJSON(w, http.StatusOK, append(b, '}'))
}
