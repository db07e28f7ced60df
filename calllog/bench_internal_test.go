package calllog

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"polar"
	"polar/llm"
)

// BenchmarkAppend records calls of sessions that grow by 400 tokens and two
// messages of 1 KB a turn, and reports how many calls a sync makes durable.
func BenchmarkAppend(b *testing.B) {
	for _, sessions := range []int{1, 32} {
		b.Run(fmt.Sprint(sessions, "sessions"), func(b *testing.B) {
			l, err := Open(Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			var left, attempt atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range sessions {
				all.Go(func() {
					for left.Load() > 0 {
						conversation(b, l, int(attempt.Add(1)), &left)
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/float64(l.journal.syncs), "calls/sync")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// conversation records at most 50 turns of a new attempt.
func conversation(b *testing.B, l *Log, attempt int, left *atomic.Int64) {
	b.Helper()
	s, err := l.Session("s", attempt)
	if err != nil {
		b.Error(err)
		return
	}
	body := make([]byte, 1000)
	for i := range body {
		body[i] = 'x'
	}
	var ids llm.IDs
	var messages []json.RawMessage
	for n := 0; n < 50 && left.Add(-1) >= 0; n++ {
		for range 400 {
			ids = append(ids, int32(len(ids)*7919)%150000)
		}
		for range 2 {
			messages = append(messages, fmt.Appendf(nil, `{"role":"user","content":"%d %s"}`, len(messages), body))
		}
		c := polar.Call{ID: polar.CallID(fmt.Sprint(n)), Messages: messages, Sampled: make([]llm.Token, 100), Delivered: true}
		if err := s.Append(b.Context(), &c, ids); err != nil {
			b.Error(err)
			return
		}
	}
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkCalls reads back a session of 200 turns and 100,000 tokens.
func BenchmarkCalls(b *testing.B) {
	dir := b.TempDir()
	l, err := openWith(Config{Dir: dir}, (&disk{}).open)
	if err != nil {
		b.Fatal(err)
	}
	s, err := l.Session("s", 1)
	if err != nil {
		b.Fatal(err)
	}
	ids := llm.IDs{}
	for n := range 200 {
		for range 500 {
			ids = append(ids, int32(len(ids)))
		}
		c := polar.Call{ID: polar.CallID(fmt.Sprint(n)), Sampled: make([]llm.Token, 200)}
		if err := s.Append(b.Context(), &c, ids); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if calls, _, err := readFile(filepath.Join(dir, s.path), -1); err != nil || len(calls) != 200 {
			b.Fatal(len(calls), err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
