package coordinator_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"polar/api"
)

// BenchmarkSubmit is 10,000 sessions submitted over HTTP as tasks of 8 samples
// by 16 clients. The bar is 5 s.
func BenchmarkSubmit(b *testing.B) {
	s := start(b, b.TempDir(), nil)
	h := httptest.NewServer(s)
	defer h.Close()
	c := &api.Client{URL: h.URL, HTTP: h.Client()}
	for round := 0; b.Loop(); round++ {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for i := next.Add(1); i <= 1250; i = next.Add(1) {
					if _, err := c.Submit(b.Context(), []byte(task(fmt.Sprintf("t-%d-%d", round, i), 8))); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
}

// BenchmarkSubmitToClaim is how long a node that waits needs to get a task that
// is submitted over HTTP.
func BenchmarkSubmitToClaim(b *testing.B) {
	s := start(b, b.TempDir(), nil)
	h := httptest.NewServer(s)
	defer h.Close()
	c := &api.Client{URL: h.URL, HTTP: h.Client()}
	for i := 0; b.Loop(); i++ {
		got := make(chan api.ClaimReply)
		go func() { got <- s.claim("n1", 1, time.Minute) }()
		if _, err := c.Submit(b.Context(), []byte(task(fmt.Sprint("t", i), 1))); err != nil {
			b.Fatal(err)
		}
		if reply := <-got; !strings.HasPrefix(sessions(reply), "t") {
			b.Fatal("nothing was claimed")
		}
	}
}

// BenchmarkReport is the end of a session: blob, transaction, callback row.
func BenchmarkReport(b *testing.B) {
	s := start(b, b.TempDir(), nil)
	s.submit(task("a", max(b.N, 1)))
	held := s.claim("n1", b.N, 0).Sessions
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(len(held)); i = next.Add(1) {
				s.report(result(held[i-1].Session))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "results/s")
}
