package node_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"polar"
	"polar/node"
	"polar/sandbox"
	"polar/sandbox/local"
)

// BenchmarkSession takes sessions whose harness does nothing through a node
// with a local sandbox: what the node itself costs.
func BenchmarkSession(b *testing.B) {
	driver, err := local.New(local.Config{Dir: filepath.Join(b.TempDir(), "sb"), Path: os.Getenv("PATH")})
	if err != nil {
		b.Fatal(err)
	}
	p := plugins(b)
	p.Drivers = map[string]sandbox.Driver{"local": driver}
	task := shell("true")
	task.NumSamples = b.N
	s := newServer(task)
	n, err := node.New(node.Config{
		ID: "n", Work: s, Recorder: &recorder{calls: []polar.Call{goodCall("a", 1)}}, Blobs: &blobs{files: map[string][]byte{}},
		Plugins: p, MaxInit: 4, MaxRun: 4, MaxPostrun: 4, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	b.ResetTimer()
	go func() { done <- n.Run(ctx) }()
	for {
		s.mu.Lock()
		ended, wake := len(s.results), s.wake
		s.mu.Unlock()
		if ended >= b.N {
			break
		}
		<-wake
	}
	b.StopTimer()
	first := time.Duration(0)
	for _, r := range s.results {
		first += time.Duration((r.Timing.Init + r.Timing.ReadyQueue) * float64(time.Millisecond))
	}
	b.ReportMetric(float64(first.Microseconds())/float64(b.N)/1000, "ms-to-run")
	cancel()
	<-done
}
