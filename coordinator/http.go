package coordinator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"polar"
	"polar/api"
	"polar/rawjson"
)

// handler answers a request or returns an error, which fail turns into a
// response. Once it has begun to write it ends the connection instead.
type handler func(w http.ResponseWriter, r *http.Request) error

// routes is the whole HTTP side.
func (c *Coordinator) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /health":               c.getHealth,
		"POST /rollout/task/submit": c.postTask,
		"GET /rollout/task/{id}":    c.getTask,
		"DELETE /rollout/task/{id}": c.deleteTask,
		"GET /rollout/status":       c.getStatus,
		"GET /rollout/results":      c.getResults,
		"POST /rollout/results/ack": c.postAck,

		"GET /rollout/session/{id}":                     c.getSession,
		"GET /rollout/session/{id}/calls":               c.getCalls,
		"GET /rollout/session/{id}/artifacts/{path...}": c.getArtifact,

		"GET /nodes":         c.getNodes,
		"GET /nodes/{id}":    c.getNode,
		"DELETE /nodes/{id}": c.deleteNode,

		"GET /tasks":               c.getTasks,
		"GET /tasks/{id}/sessions": c.getSessions,
		"GET /events":              c.getEvents,
	} {
		mux.Handle(pattern, c.answer(h))
	}
	// A page in someone's browser must not submit tasks to a server on the
	// loopback interface, where there may be no token.
	sameOrigin := http.NewCrossOriginProtection()
	return c.answer(func(w http.ResponseWriter, r *http.Request) error {
		if err := c.authorize(r); err != nil {
			return err
		}
		if err := sameOrigin.Check(r); err != nil {
			return &httpError{http.StatusForbidden, err.Error()}
		}
		h, pattern := mux.Handler(r)
		if pattern == "" {
			return noRoute(h, r)
		}
		mux.ServeHTTP(w, r)
		return nil
	})
}

// ServeHTTP serves the control plane.
func (c *Coordinator) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

func (c *Coordinator) authorize(r *http.Request) error {
	if c.cfg.ControlToken == "" || r.URL.Path == "/health" {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(c.cfg.ControlToken))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return &httpError{http.StatusUnauthorized, "the control token is needed: Authorization: Bearer TOKEN"}
	}
	return nil
}

// noRoute says in JSON what the mux says in text.
func noRoute(h http.Handler, r *http.Request) error {
	answer := &statusOnly{header: http.Header{}}
	h.ServeHTTP(answer, r)
	if answer.status == http.StatusMethodNotAllowed {
		return &httpError{answer.status, fmt.Sprintf("%s is not for %s; allowed: %s", r.URL.Path, r.Method, answer.header.Get("Allow"))}
	}
	return &httpError{http.StatusNotFound, fmt.Sprintf("no route %s %s", r.Method, r.URL.Path)}
}

// statusOnly is a response that nobody gets.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(p []byte) (int, error) { return len(p), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// httpError is an error with a status of its own.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

// answer is the one place where errors become responses.
func (c *Coordinator) answer(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil || r.Context().Err() != nil {
			return
		}
		status, body := describe(err)
		if status == http.StatusInternalServerError {
			c.cfg.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		writeJSON(w, status, body)
	})
}

func describe(err error) (int, api.Error) {
	body := api.Error{Detail: strings.Join(strings.Fields(err.Error()), " ")}
	var (
		own      *httpError
		field    *polar.FieldError
		syntax   *rawjson.SyntaxError
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &own):
		return own.status, body
	case errors.As(err, &field):
		body.Field = field.Field
		return http.StatusBadRequest, body
	case errors.As(err, &syntax):
		return http.StatusBadRequest, body
	case errors.As(err, &tooLarge):
		body.Detail = fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)
		return http.StatusRequestEntityTooLarge, body
	case errors.Is(err, api.ErrNotFound):
		return http.StatusNotFound, body
	case errors.Is(err, api.ErrConflict):
		return http.StatusConflict, body
	case errors.Is(err, api.ErrNoSpace):
		return http.StatusInsufficientStorage, body
	}
	return http.StatusInternalServerError, body
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"detail":"the reply could not be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that left does not need it
}

// stream writes a document. An error on the way can only cut the connection,
// so that the client does not take a part for the whole.
func (c *Coordinator) stream(w http.ResponseWriter, r *http.Request, d document) {
	w.Header().Set("Content-Type", "application/json")
	body := d.reader()
	defer func() { _ = body.Close() }()
	if _, err := io.Copy(w, body); err != nil {
		if r.Context().Err() == nil {
			c.cfg.Log.Error("reply was cut", "path", r.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
}

// readBody reads a request's body within the bound. Of a body that is too large
// some more is read, so that a client that is still sending gets the answer.
func (c *Coordinator) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, c.cfg.MaxBodyBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.CopyN(io.Discard, r.Body, 8*c.cfg.MaxBodyBytes)
		return nil, err
	}
	if err != nil && r.Context().Err() == nil {
		return nil, &httpError{http.StatusBadRequest, "body: " + err.Error()}
	}
	return bytes.TrimSpace(body), err
}

// wait reads a duration of the query such as 30s, or 30 for seconds.
func wait(r *http.Request) (time.Duration, error) {
	s := r.URL.Query().Get("wait")
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		d, err = time.ParseDuration(s + "s")
	}
	if err != nil || d < 0 || d > maxWait {
		return 0, polar.Invalid("wait", "%q is not a time from 0s to %s", s, maxWait)
	}
	return d, nil
}

// limit reads how many the query asks for.
func limit(r *http.Request, fallback, most int) (int, error) {
	s := r.URL.Query().Get("limit")
	if s == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, polar.Invalid("limit", "%q is not a number from 1 to %d", s, most)
	}
	return n, nil
}

// until waits for a change, or says that there is no more waiting.
func (c *Coordinator) until(ctx context.Context, wake <-chan struct{}, timeout <-chan time.Time) (more bool) {
	select {
	case <-wake:
		return true
	case <-timeout:
	case <-ctx.Done():
	case <-c.stopped:
	}
	return false
}
