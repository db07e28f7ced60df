package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"polar/rawjson"
)

// engine answers Chat Completions as vLLM streams them, from prepared bytes, so
// that what is measured is what stands in front of it. The prompt has one id
// per four bytes of the request.
type engine struct {
	chunks   int           // after the first
	perChunk int           // tokens in each
	pause    time.Duration // before each chunk but the first
	delta    []byte
	first    sync.Map // prompt length -> bytes of the first event
}

func newEngine(chunks, perChunk int, pause time.Duration) *engine {
	e := &engine{chunks: chunks, perChunk: perChunk, pause: pause}
	d := append([]byte(nil), `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"word word word word"},"logprobs":{"content":[`...)
	ids := make([]int32, perChunk)
	for i := range perChunk {
		ids[i] = int32(1000 + i)
		if i > 0 {
			d = append(d, ',')
		}
		d = append(d, `{"token":"word","logprob":-0.12345678,"bytes":[119,111,114,100],"top_logprobs":[]}`...)
	}
	d = append(d, `]},"finish_reason":null,"token_ids":`...)
	d = rawjson.AppendInts(d, ids)
	e.delta = append(d, "}]}\n\n"...)
	return e
}

func (e *engine) firstEvent(n int) []byte {
	if b, ok := e.first.Load(n); ok {
		return b.([]byte)
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i*7919) % 151_936
	}
	b := append([]byte(nil), `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","prompt_token_ids":`...)
	b = rawjson.AppendInts(b, ids)
	b = append(b, `,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`+"\n\n"...)
	e.first.Store(n, b)
	return b
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		fmt.Fprint(w, `{"object":"list","data":[]}`)
		return
	}
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	// Round to turns of the growing history, so that prepared answers are reused.
	n := (int(size)/4 + 511) / 512 * 512
	flush := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	if !e.send(r.Context(), w, flush, e.firstEvent(n), 0) {
		return
	}
	for range e.chunks {
		if !e.send(r.Context(), w, flush, e.delta, e.pause) {
			return
		}
	}
	last := `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop","token_ids":[]}]}` + "\n\n" +
		`data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":` + strconv.Itoa(n) +
		`,"completion_tokens":` + strconv.Itoa(e.chunks*e.perChunk) + `,"total_tokens":` + strconv.Itoa(n+e.chunks*e.perChunk) + "}}\n\ndata: [DONE]\n\n"
	e.send(r.Context(), w, flush, []byte(last), e.pause)
}

func (e *engine) send(ctx context.Context, w io.Writer, flush *http.ResponseController, b []byte, after time.Duration) bool {
	if after > 0 {
		t := time.NewTimer(after)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	if _, err := w.Write(b); err != nil {
		return false
	}
	return flush.Flush() == nil
}
