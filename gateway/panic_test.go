package gateway_test

import (
	"context"
	"io"
	"iter"
	"strings"
	"testing"

	"polar"
	"polar/gateway"
	"polar/llm"
)

func TestAPanicIsOneCallsOwn(t *testing.T) {
	t.Parallel()
	tests := map[string]gateway.Backend{
		"at once": backendFunc(func(func(llm.Event, error) bool) { panic("boom") }),
		"midway": backendFunc(func(yield func(llm.Event, error) bool) {
			yield(llm.Event{Tokens: []llm.Token{{ID: 1}}, Text: "a"}, nil)
			panic("boom")
		}),
	}
	for name, backend := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, says(), func(_ *rig, c *gateway.Config) { c.Backend = backend })
			r.open(polar.Recording{})
			if status, body := r.post(hello); status != 500 || !strings.Contains(body, `"type":"server_error"`) {
				t.Errorf("%d %s", status, body)
			}
		})
		t.Run(name+", streamed", func(t *testing.T) {
			t.Parallel()
			r := newRig(t, says(), func(_ *rig, c *gateway.Config) { c.Backend = backend })
			r.open(polar.Recording{})
			// It was told before the first byte, or the stream is cut off.
			resp := r.start(t.Context(), "POST", callPath, helloStream)
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if name == "at once" && resp.StatusCode != 500 || name == "midway" && err == nil || strings.Contains(string(body), "[DONE]") {
				t.Errorf("%s %s, %v", resp.Status, body, err)
			}
			calls := r.calls()
			if len(calls) != 1 || calls[0].Error == nil || calls[0].Error.Status != 500 || calls[0].Delivered {
				t.Errorf("recorded %+v", calls)
			}
			if s := r.gateway.Stats(); s.InFlight != 0 || s.Sessions != 0 || s.Calls != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

type backendFunc func(yield func(llm.Event, error) bool)

func (f backendFunc) Generate(context.Context, llm.Request) iter.Seq2[llm.Event, error] {
	return iter.Seq2[llm.Event, error](f)
}

func TestABackendThatJustStopsIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(), func(_ *rig, c *gateway.Config) {
		c.Backend = backendFunc(func(yield func(llm.Event, error) bool) { yield(llm.Event{Text: "a"}, nil) })
	})
	r.open(polar.Recording{})
	if status, body := r.post(hello); status != 503 {
		t.Errorf("%d %s", status, body)
	}
	if calls := r.calls(); calls[0].Error.Kind != llm.EngineFailed {
		t.Errorf("recorded %+v", calls)
	}
}
