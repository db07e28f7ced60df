package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// latency compares what polar adds to a call with what the bare proxy adds.
func (b *bench) latency(ctx context.Context) ([]figure, error) {
	r, err := b.newRig(ctx, newEngine(16, 4, 0))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	sync, err := fsyncTime(r.dataDir)
	if err != nil {
		return nil, err
	}
	figures := []figure{{what: "one append and fsync here (p50)", measured: short(sync)}}
	for _, size := range []int{1 << 10, 100 << 10} {
		through, err := r.session(ctx)
		if err != nil {
			return nil, err
		}
		targets := []target{{name: "direct", url: r.engineURL}, {name: "proxy", url: r.proxyURL}, through}
		_, whole, err := medians(ctx, newClient(8), targets, body(size), b.rounds)
		if err != nil {
			return nil, err
		}
		proxyAdds, polarAdds := whole[1]-whole[0], whole[2]-whole[0]
		bar := 2*proxyAdds + sync
		figures = append(figures, figure{
			what:     fmt.Sprintf("added latency of a call, %d KB body, 1 client (p50)", size>>10),
			measured: fmt.Sprintf("%s (proxy adds %s)", short(polarAdds), short(proxyAdds)),
			bar:      fmt.Sprintf("≤ 2 × proxy + fsync = %s", short(bar)),
			met:      polarAdds <= bar,
		})
	}
	return figures, nil
}

func fsyncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 2048)
	var took []time.Duration
	for range 100 {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	return percentile(took, 50), nil
}

// throughput runs growing conversations side by side, through the bare proxy
// and through polar in turn, and takes the best of three of each.
func (b *bench) throughput(ctx context.Context) ([]figure, error) {
	r, err := b.newRig(ctx, newEngine(16, 4, 0))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	const sessions, perSession, grow = 32, 50, 4 << 10
	client := newClient(64)
	var bare, through float64
	for range 3 {
		plain := make([]target, sessions)
		for i := range plain {
			plain[i] = target{name: "proxy", url: r.proxyURL}
		}
		t, err := turns(ctx, client, plain, perSession, grow)
		if err != nil {
			return nil, err
		}
		bare = max(bare, t)
		recorded, err := r.sessions(ctx, sessions)
		if err != nil {
			return nil, err
		}
		if t, err = turns(ctx, client, recorded, perSession, grow); err != nil {
			return nil, err
		}
		through = max(through, t)
	}
	return []figure{{
		what:     "32 sessions × 50 turns, history growing 4 KB a turn",
		measured: fmt.Sprintf("%.0f turns/s (proxy %.0f), %.2f×", through, bare, through/bare),
		bar:      "≥ 0.6 × the bare proxy",
		met:      through >= 0.6*bare,
	}}, nil
}

// streaming measures the time to the first token that polar adds.
func (b *bench) streaming(ctx context.Context) ([]figure, error) {
	r, err := b.newRig(ctx, newEngine(8, 1, 2*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	through, err := r.session(ctx)
	if err != nil {
		return nil, err
	}
	targets := []target{{name: "direct", url: r.engineURL}, {name: "proxy", url: r.proxyURL}, through}
	first, _, err := medians(ctx, newClient(8), targets, body(4<<10), b.rounds)
	if err != nil {
		return nil, err
	}
	added := first[2] - first[0]
	return []figure{{
		what:     "added time to first token, 4 KB body (p50)",
		measured: fmt.Sprintf("%s (proxy adds %s)", short(added), short(first[1]-first[0])),
		bar:      "≤ 1 ms",
		met:      added <= time.Millisecond,
	}}, nil
}

// openStreams holds 2,000 answers open at once and reads polar's memory.
func (b *bench) openStreams(ctx context.Context) ([]figure, error) {
	const streams = 2000
	r, err := b.newRig(ctx, newEngine(4, 1, 2*time.Second))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	targets, err := r.sessions(ctx, streams)
	if err != nil {
		return nil, err
	}
	client := newClient(streams)
	errs := make([]error, streams)
	var all sync.WaitGroup
	payload := body(4 << 10)
	for i, t := range targets {
		all.Go(func() { _, _, errs[i] = call(ctx, client, t, payload) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	peak, most := int64(0), 0
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-done:
			open = false
		case <-tick.C:
			bytes, err := rss(r.polarPID)
			if err != nil {
				return nil, err
			}
			peak = max(peak, bytes)
			var health struct {
				InFlight int `json:"inflight"`
			}
			if get(ctx, r.gateway+"/health", &health) == nil {
				most = max(most, health.InFlight)
			}
		}
	}
	client.CloseIdleConnections()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return []figure{{
		what:     fmt.Sprintf("memory with %d streams open at once", most),
		measured: fmt.Sprintf("%d MB", peak>>20),
		bar:      "2,000 streams in ≤ 500 MB",
		met:      peak <= 500<<20 && most >= streams*95/100,
	}}, nil
}

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
