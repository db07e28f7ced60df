package coordinator

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"polar"
	"polar/api"
	"polar/llm"
	"polar/rawjson"
)

// getSession gives the whole result of a session, or how it stands while it has
// none.
func (c *Coordinator) getSession(w http.ResponseWriter, r *http.Request) error {
	rec, err := c.cfg.Store.Session(r.Context(), polar.SessionID(r.PathValue("id")))
	if err != nil {
		return err
	}
	if rec.Result == nil {
		writeJSON(w, http.StatusOK, rec.SessionSummary)
		return nil
	}
	d, err := c.single(r.Context(), *rec.Result)
	if err != nil {
		return err
	}
	c.stream(w, r, d)
	return nil
}

// getCalls gives the recorded calls of an attempt, the newest unless another is
// asked for, with their tokens if they are asked for.
func (c *Coordinator) getCalls(w http.ResponseWriter, r *http.Request) error {
	id := polar.SessionID(r.PathValue("id"))
	rec, err := c.cfg.Store.Session(r.Context(), id)
	if err != nil {
		return err
	}
	if c.cfg.Calls == nil {
		return fmt.Errorf("calls of session %s: this server records none: %w", id, api.ErrNotFound)
	}
	attempt := rec.Attempt
	if s := r.URL.Query().Get("attempt"); s != "" {
		if attempt, err = strconv.Atoi(s); err != nil || attempt < 1 || attempt > rec.Attempt {
			return polar.Invalid("attempt", "%q is not an attempt of the session, which has had %d", s, rec.Attempt)
		}
	}
	tokens := false
	if s := r.URL.Query().Get("tokens"); s != "" {
		if tokens, err = strconv.ParseBool(s); err != nil {
			return polar.Invalid("tokens", "%q is not true or false", s)
		}
	}
	calls, err := c.cfg.Calls(r.Context(), id, attempt)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"session_id":%q,"attempt":%d,"calls":[`, id, attempt)
	for i, call := range calls {
		// One at a time: with their tokens they may be large.
		body, err := encode(callOnWire(call, tokens))
		if err != nil {
			c.cfg.Log.Error("reply was cut", "path", r.URL.Path, "error", err)
			panic(http.ErrAbortHandler)
		}
		if i > 0 {
			body = append([]byte{','}, body...)
		}
		if _, err := w.Write(body); err != nil {
			return nil //nolint:nilerr // the client has left
		}
	}
	fmt.Fprintln(w, `]}`)
	return nil
}

func callOnWire(call polar.Call, tokens bool) api.Call {
	out := api.Call{Call: call}
	if !tokens {
		return out
	}
	out.PromptIDs = call.Prompt.IDs()
	out.SampledIDs = make(llm.IDs, len(call.Sampled))
	out.Logprobs = make(llm.Logprobs, len(call.Sampled))
	for i, t := range call.Sampled {
		out.SampledIDs[i], out.Logprobs[i] = t.ID, t.Logprob
	}
	return out
}

// getArtifact gives a file that was kept from the sandbox. Only paths that the
// result lists are served, and never as a page that a browser would run.
func (c *Coordinator) getArtifact(w http.ResponseWriter, r *http.Request) error {
	id, name := polar.SessionID(r.PathValue("id")), r.PathValue("path")
	rec, err := c.cfg.Store.Session(r.Context(), id)
	if err != nil {
		return err
	}
	missing := fmt.Errorf("artifact %s of session %s: %w", name, id, api.ErrNotFound)
	if rec.Result == nil || rec.Result.Blob == "" {
		return missing
	}
	artifacts, err := c.artifacts(rec.Result.Blob)
	if err != nil {
		return err
	}
	for _, a := range artifacts {
		if a.Path != name {
			continue
		}
		f, err := c.cfg.Blobs.Open(a.Blob)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		w.Header().Set("Content-Type", contentType(name))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, f)
		return nil
	}
	return missing
}

// artifacts reads the list of kept files out of a result.
func (c *Coordinator) artifacts(blob string) ([]polar.Artifact, error) {
	f, err := c.cfg.Blobs.Open(blob)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	o, err := rawjson.ParseObject(data)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	var out []polar.Artifact
	if err := json.Unmarshal(o.Get("artifacts"), &out); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return out, nil
}

func contentType(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".log", ".txt", ".patch", ".diff", ".md", ".out", ".err", ".jsonl", ".yaml", ".yml":
		return "text/plain; charset=utf-8"
	case ".json":
		return "application/json"
	}
	return "application/octet-stream"
}
