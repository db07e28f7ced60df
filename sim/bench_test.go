package sim_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"polar/sim"
)

// discard is a response that keeps nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) FlushError() error           { return nil }

// BenchmarkChat is a model call without the network: prompts of several
// lengths, an answer of 64 tokens, all ids and logprobs.
func BenchmarkChat(b *testing.B) {
	for _, prompt := range []int{100, 10_000, 60_000} {
		for _, stream := range []bool{true, false} {
			b.Run(fmt.Sprintf("prompt=%d/stream=%v", prompt, stream), func(b *testing.B) {
				c := parse(b, "rules: [{filler_tokens: 63}]")
				c.KeepCalls = 0
				s := start(b, c)
				message := fmt.Sprintf(`{"role":"user","content":%q}`, longText(prompt*25/10))
				body := request(message, fmt.Sprintf(`"stream":%v`, stream))
				b.ReportAllocs()
				for b.Loop() {
					s.ServeHTTP(discard{http.Header{}}, httptest.NewRequestWithContext(b.Context(), http.MethodPost, chatPath, strings.NewReader(body)))
				}
			})
		}
	}
}

// BenchmarkCallsOverLoopback is what one client after another gets, with the
// built-in policy.
func BenchmarkCallsOverLoopback(b *testing.B) {
	s := httptest.NewServer(start(b, sim.Defaults()))
	defer s.Close()
	body := request(`{"role":"user","content":"Count the lines of app.log whose level is ERROR and write just that number to error_count.txt."}`, `"stream":true`)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			res, err := s.Client().Post(s.URL+chatPath, "application/json", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	})
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		start(b, sim.Defaults())
	}
}
