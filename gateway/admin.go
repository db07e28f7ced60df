package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"polar"
)

const (
	defaultPause = 300 * time.Second
	maxPause     = 24 * time.Hour
)

// inferenceStatus is what the gateway does with the engine.
type inferenceStatus struct {
	Paused bool `json:"paused"`
	// InFlight counts the calls the engine works on, Held those that wait for
	// the end of a pause.
	InFlight int    `json:"inflight"`
	Held     int    `json:"held"`
	BaseURL  string `json:"base_url"`
	Engine   string `json:"engine"`
	Version  string `json:"policy_version,omitempty"`
}

func (g *Gateway) showInference(w http.ResponseWriter, _ *http.Request) {
	now := g.gate.status()
	writeJSON(w, http.StatusOK, inferenceStatus{
		Paused: now.paused, InFlight: now.inFlight, Held: now.held,
		BaseURL: g.cfg.Engine.URL, Engine: g.cfg.Engine.Kind, Version: now.version,
	})
}

// pauseInference answers when the engine has nothing more to do. Calls that
// come meanwhile wait.
func (g *Gateway) pauseInference(w http.ResponseWriter, r *http.Request) {
	timeout := defaultPause
	if given := r.URL.Query().Get("timeout_seconds"); given != "" {
		seconds, err := strconv.ParseFloat(given, 64)
		if err != nil || !(seconds >= 0 && seconds <= maxPause.Seconds()) {
			writeError(w, http.StatusBadRequest, fmt.Sprintf("%q is not a number of seconds up to %.0f", given, maxPause.Seconds()), "timeout_seconds")
			return
		}
		timeout = time.Duration(seconds * float64(time.Second))
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	switch err := g.gate.pause(ctx); {
	case errors.Is(err, errResumed):
		writeError(w, http.StatusConflict, err.Error(), "")
	case err != nil:
		writeError(w, http.StatusGatewayTimeout, fmt.Sprintf("calls are in flight after %v; inference goes on", timeout), "")
	default:
		g.showInference(w, r)
	}
}

// resumeInference lets calls through again. A version named in a parameter or
// in the body is what they are stamped with.
func (g *Gateway) resumeInference(w http.ResponseWriter, r *http.Request) {
	body := struct {
		Version string `json:"version"`
	}{r.URL.Query().Get("version")}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBytes))
	if err == nil && len(data) > 0 {
		err = polar.DecodeStrict(data, &body)
	}
	if err != nil {
		writeInvalid(w, err)
		return
	}
	g.gate.resume(body.Version)
	g.showInference(w, r)
}

// Held is for how long calls of the session with that key have waited because
// inference was paused. Time that several waited at once counts once.
func (g *Gateway) Held(key string) time.Duration {
	s := g.sessions.get(key)
	if s == nil {
		return 0
	}
	return s.held.elapsed()
}
