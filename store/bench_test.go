package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"polar"
)

// BenchmarkSubmit is 10,000 sessions submitted as tasks of 8 samples from 16
// callers, durable. The bar is 5 s.
func BenchmarkSubmit(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s := open(b, b.TempDir(), newClock())
		b.StartTimer()
		var wg sync.WaitGroup
		var next atomic.Int64
		for range 16 {
			wg.Go(func() {
				for i := next.Add(1); i <= 1250; i = next.Add(1) {
					enqueue(b, s, newTask(fmt.Sprint("t", i), 8))
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		st := s.Stats()
		b.ReportMetric(float64(st.Operations)/float64(st.Transactions), "tasks/transaction")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
}

// BenchmarkSubmitOne is one task with 10,000 samples.
func BenchmarkSubmitOne(b *testing.B) {
	s := open(b, b.TempDir(), newClock())
	for i := 0; b.Loop(); i++ {
		enqueue(b, s, newTask(fmt.Sprint("t", i), 10_000))
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
}

// BenchmarkClaimFinish claims and finishes one session at a time from 16 nodes,
// over a queue of 400 tasks.
func BenchmarkClaimFinish(b *testing.B) {
	s := open(b, b.TempDir(), newClock())
	per := b.N/400 + 1
	if b.N == 0 {
		per = 1
	}
	for i := range 400 {
		enqueue(b, s, newTask(fmt.Sprint("t", i), per))
	}
	b.ResetTimer()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				v := claim(b, s, "n", 1)
				finish(b, s, v[0], polar.Completed)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
}
