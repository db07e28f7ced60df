package gateway_test

import (
	"context"
	"io"
	"iter"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"polar"
	"polar/gateway"
	"polar/llm"
)

// TestALargeImageIsInMemoryOnce is not parallel: it measures the heap.
func TestALargeImageIsInMemoryOnce(t *testing.T) {
	const size = 24 << 20
	image := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("A", size) + `"}}]}],"stream":true}`
	var during int64
	b := newBubble(t, weighing{func() { during = heap() }}, func(c *gateway.Config) {
		c.OpenLog = func(polar.SessionID, int) (gateway.SessionLog, error) { return forgetful{}, nil }
	})
	before := heap()
	for _, length := range []int64{int64(len(image)), -1} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", callPath, io.NopCloser(strings.NewReader(image)))
		r.ContentLength = length
		w := httptest.NewRecorder()
		b.gateway.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		// A body of unknown length is read into a buffer that doubles.
		allowed := int64(size) + 2<<20
		if length < 0 {
			allowed = 2*size + 2<<20
		}
		if got := during - before; got > allowed {
			t.Errorf("length %d: %d MiB are in use for an image of %d MiB", length, got>>20, size>>20)
		}
	}
	if got := heap() - before; got > 2<<20 {
		t.Errorf("%d MiB are in use when the call is stored", got>>20)
	}
	runtime.KeepAlive(image)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// weighing is an engine that looks around before it answers.
type weighing struct{ look func() }

func (b weighing) Generate(_ context.Context, _ llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		b.look()
		yield(llm.Event{PromptIDs: llm.IDs{1}, Tokens: []llm.Token{{ID: 1}}, Text: "a cat", Finish: llm.FinishStop}, nil)
	}
}

// forgetful is a log that keeps nothing.
type forgetful struct{}

func (forgetful) Append(context.Context, *polar.Call, llm.IDs) error { return nil }
func (forgetful) SetDelivered(polar.CallID, bool, int) error         { return nil }
func (forgetful) Calls() ([]polar.Call, error)                       { return nil, nil }
func (forgetful) Close() error                                       { return nil }
