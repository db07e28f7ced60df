package gateway

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// maxControlBytes bounds the body of a control request.
const maxControlBytes = 1 << 20

func (g *Gateway) routeControl(mux *http.ServeMux) {
	open := func(pattern string, serve http.HandlerFunc) { mux.Handle(pattern, g.guard(nil, serve)) }
	closed := func(pattern string, serve http.HandlerFunc) { open(pattern, g.authorised(serve)) }
	open("GET /{$}", g.root)
	open("GET /health", g.health)
	closed("POST /sessions", g.createSession)
	closed("GET /sessions", g.listSessions)
	closed("GET /sessions/{id}", g.withSession(g.showSession))
	closed("GET /sessions/{id}/completions", g.withSession(g.showCompletions))
	closed("GET /sessions/{id}/trajectory", g.withSession(g.showTrajectory))
	closed("DELETE /sessions/{id}", g.withSession(g.deleteSession))
	closed("GET /admin/inference/status", g.showInference)
	closed("POST /admin/inference/pause", g.pauseInference)
	closed("POST /admin/inference/resume", g.resumeInference)
}

// authorised lets only those in who have the control token.
func (g *Gateway) authorised(serve http.HandlerFunc) http.HandlerFunc {
	want := []byte(g.cfg.ControlToken)
	return func(w http.ResponseWriter, r *http.Request) {
		token, _ := bearer(r)
		if len(want) > 0 && subtle.ConstantTimeCompare([]byte(token), want) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, http.StatusUnauthorized, "the control token is missing or wrong", "")
			return
		}
		serve(w, r)
	}
}

func (g *Gateway) withSession(serve func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := g.sessions.getID(polar.SessionID(r.PathValue("id")))
		if s == nil {
			writeError(w, http.StatusNotFound, "no such session is open", "")
			return
		}
		serve(w, r, s)
	}
}

func (g *Gateway) root(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"service": "polar gateway", "status": "ok"})
}

func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Status string `json:"status"`
		Stats
	}{"ok", g.Stats()})
}

// createSession opens a session for a harness that somebody starts by hand.
func (g *Gateway) createSession(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Task    polar.TaskID    `json:"task_id"`
		Session polar.SessionID `json:"session_id"`
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBytes))
	if err != nil {
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body could not be read or is larger than %d bytes", maxControlBytes), "")
		return
	}
	if len(data) > 0 {
		err = polar.DecodeStrict(data, &body)
	}
	if err == nil && body.Task != "" && !polar.ValidID(string(body.Task)) {
		err = polar.Invalid("task_id", "%q is not an id", body.Task)
	}
	if err == nil && body.Session != "" && !polar.ValidID(string(body.Session)) {
		err = polar.Invalid("session_id", "%q is not an id", body.Session)
	}
	if err != nil {
		writeInvalid(w, err)
		return
	}
	rec := polar.Recording{Session: body.Session, Task: body.Task, Attempt: 1, Key: string(body.Session)}
	if rec.Session == "" {
		rec.Session = polar.SessionID("session-" + randomHex(8))
	}
	endpoint, err := g.Open(r.Context(), rec)
	switch {
	case errors.Is(err, ErrSessionExists):
		writeError(w, http.StatusConflict, err.Error(), "session_id")
		return
	case err != nil:
		g.log.Error("session not opened", "session", rec.Session, "error", err)
		writeError(w, http.StatusServiceUnavailable, "the session could not be opened", "")
		return
	}
	root := endpoint.URL
	if root == "" {
		root = "http://" + r.Host
	}
	reply := map[string]any{
		"session_id": rec.Session,
		"api_key":    endpoint.Key,
		"base_urls":  map[string]string{"openai": root + "/v1", "anthropic": root, "gemini": root},
	}
	if endpoint.ContextWindow > 0 {
		reply["context_window"] = endpoint.ContextWindow
	}
	writeJSON(w, http.StatusCreated, reply)
}

// summary is a session as the control routes show it.
type summary struct {
	Session          polar.SessionID `json:"session_id"`
	Task             polar.TaskID    `json:"task_id,omitempty"`
	Attempt          int             `json:"attempt"`
	Status           string          `json:"status"`
	Created          time.Time       `json:"created_at"`
	Calls            int             `json:"calls"`
	InFlight         int             `json:"inflight"`
	CompletionTokens int             `json:"completion_tokens"`
	Error            string          `json:"error,omitempty"`
}

func (s *session) summary() summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := summary{
		Session: s.rec.Session, Task: s.rec.Task, Attempt: s.rec.Attempt, Status: "open", Created: s.opened,
		Calls: s.lastCall, InFlight: len(s.inFlight), CompletionTokens: s.tokens,
	}
	if s.ended {
		out.Status = "ended"
	}
	if s.broken != nil {
		out.Error = ErrStorage.Error()
	}
	return out
}

func (g *Gateway) listSessions(w http.ResponseWriter, _ *http.Request) {
	out := []summary{}
	for _, s := range g.sessions.list() {
		out = append(out, s.summary())
	}
	writeJSON(w, http.StatusOK, map[string]any{"sessions": out})
}

func (g *Gateway) showSession(w http.ResponseWriter, _ *http.Request, s *session) {
	writeJSON(w, http.StatusOK, s.summary())
}

func (g *Gateway) deleteSession(w http.ResponseWriter, r *http.Request, s *session) {
	if _, err := g.Close(r.Context(), s.rec.Key); err != nil && !errors.Is(err, ErrStorage) {
		g.log.Error("session not closed", "session", s.rec.Session, "error", err)
		writeError(w, http.StatusServiceUnavailable, "the session has ended but could not be closed", "")
		return
	}
	writeJSON(w, http.StatusOK, s.summary())
}

// completion is a recorded call with its tokens written out.
type completion struct {
	polar.Call
	PromptIDs        llm.IDs      `json:"prompt_ids"`
	ResponseIDs      llm.IDs      `json:"response_ids"`
	ResponseLogprobs llm.Logprobs `json:"response_logprobs"`
}

// showCompletions writes call by call: all prompts of a long session at once
// are more than it takes to record it.
func (g *Gateway) showCompletions(w http.ResponseWriter, _ *http.Request, s *session) {
	calls, err := s.log.Calls()
	if err != nil {
		g.unreadable(w, s, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"session_id":%s,"completions":[`, rawjson.Quote(string(s.rec.Session)))
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i, c := range calls {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		full := completion{Call: c, PromptIDs: c.Prompt.IDs(), ResponseIDs: llm.IDs{}, ResponseLogprobs: llm.Logprobs{}}
		for _, token := range c.Sampled {
			full.ResponseIDs = append(full.ResponseIDs, token.ID)
			full.ResponseLogprobs = append(full.ResponseLogprobs, token.Logprob)
		}
		if err := enc.Encode(full); err != nil {
			panic(http.ErrAbortHandler) // the client left, or must see that this is not all
		}
	}
	fmt.Fprint(w, "]}\n")
}

func (g *Gateway) unreadable(w http.ResponseWriter, s *session, err error) {
	g.log.Error("calls not read", "session", s.rec.Session, "error", err)
	writeError(w, http.StatusServiceUnavailable, "the calls of the session cannot be read", "")
}

// showTrajectory builds what a trainer would get of the calls so far.
func (g *Gateway) showTrajectory(w http.ResponseWriter, r *http.Request, s *session) {
	if g.cfg.Build == nil {
		notFound(w, r)
		return
	}
	query := r.URL.Query()
	strategy := query.Get("strategy")
	if strategy == "" {
		strategy = "per_request"
	}
	calls, err := s.log.Calls()
	if err != nil {
		g.unreadable(w, s, err)
		return
	}
	trajectory, err := g.cfg.Build(strategy, builderConfig(query), calls)
	var field *polar.FieldError
	switch {
	case errors.Is(err, polar.ErrUnknownKind):
		writeError(w, http.StatusBadRequest, "strategy "+err.Error(), "strategy")
	case errors.As(err, &field):
		writeInvalid(w, err)
	case err != nil:
		writeError(w, http.StatusUnprocessableEntity, err.Error(), "")
	default:
		writeJSON(w, http.StatusOK, trajectory)
	}
}

// builderConfig makes a JSON object of parameters. A value that is JSON is
// taken as that, any other as text; a parameter given twice is a list.
func builderConfig(query url.Values) json.RawMessage {
	query.Del("strategy")
	if len(query) == 0 {
		return nil
	}
	config := map[string]any{}
	for key, values := range query {
		var list []any
		for _, v := range values {
			if rawjson.Valid([]byte(v)) == nil {
				list = append(list, json.RawMessage(v))
			} else {
				list = append(list, v)
			}
		}
		config[key] = list
		if len(list) == 1 {
			config[key] = list[0]
		}
	}
	raw, _ := json.Marshal(config) // text and valid JSON only
	return raw
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, http.StatusNotFound, fmt.Sprintf("there is no %s %s here", r.Method, r.URL.Path), "")
}

func writeInvalid(w http.ResponseWriter, err error) {
	if f, ok := errors.AsType[*polar.FieldError](err); ok {
		writeError(w, http.StatusBadRequest, f.Error(), f.Field)
		return
	}
	writeError(w, http.StatusBadRequest, err.Error(), "")
}

// writeError writes an error in the shape of the control plane, which
// providers' clients understand too: they look for error.message.
func writeError(w http.ResponseWriter, status int, detail, field string) {
	type inner struct {
		Message string `json:"message"`
	}
	writeJSON(w, status, struct {
		Detail string `json:"detail"`
		Field  string `json:"field,omitempty"`
		Error  inner  `json:"error"`
	}{detail, field, inner{detail}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client left
}
