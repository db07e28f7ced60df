package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// wire is how one format asks for a streamed answer.
type wire struct {
	name, path, body string
}

var wires = []wire{
	{"chat", "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"say something long"}]}`},
	{"responses", "/v1/responses", `{"model":"m","stream":true,"input":"say something long"}`},
	{"messages", "/v1/messages", `{"model":"m","stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"say something long"}]}`},
	{"gemini", "/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"say something long"}]}]}`},
}

// flow is how one streamed answer came: how long until its first text, and the
// longest silence after that.
type flow struct{ first, gap time.Duration }

// watch reads one streamed answer as it comes. The engine's text is "word …".
func watch(ctx context.Context, c *http.Client, t target, w wire) (flow, error) {
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+w.path, bytes.NewReader([]byte(w.body)))
	if err != nil {
		return flow{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+t.key)
	resp, err := c.Do(req)
	if err != nil {
		return flow{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return flow{}, fmt.Errorf("%s: %s: %s", w.name, resp.Status, text)
	}
	var f flow
	buf := make([]byte, 64<<10)
	last := time.Time{}
	for {
		n, err := resp.Body.Read(buf)
		now := time.Now()
		if bytes.Contains(buf[:n], []byte("word")) {
			if f.first == 0 {
				f.first = now.Sub(start)
			} else {
				f.gap = max(f.gap, now.Sub(last))
			}
			last = now
		}
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return flow{}, err
		}
	}
}

// flows watches so many answers at once, one for each target, and returns the
// median time to the first text and the 99th percentile of the longest gap.
func flows(ctx context.Context, c *http.Client, targets []target, w wire, rounds int) (first, gap time.Duration, err error) {
	var mu sync.Mutex
	var firsts, gaps []time.Duration
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			for range rounds {
				f, err := watch(ctx, c, t, w)
				if err != nil {
					errs[i] = err
					return
				}
				mu.Lock()
				firsts, gaps = append(firsts, f.first), append(gaps, f.gap)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	return percentile(firsts, 50), percentile(gaps, 99), nil
}

// everyWire measures each format at 1, 32 and 500 streams at once, beside the
// engine asked directly with as many.
func (b *bench) everyWire(ctx context.Context) ([]figure, error) {
	const pause = 20 * time.Millisecond
	r, err := b.newRig(ctx, newEngine(20, 1, pause))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	var figures []figure
	for _, streams := range []int{1, 32, 500} {
		client := newClient(streams)
		rounds := max(1, b.rounds/10/streams)
		plain := make([]target, streams)
		for i := range plain {
			plain[i] = target{name: "direct", url: r.engineURL}
		}
		sessions, err := r.sessions(ctx, streams)
		if err != nil {
			return nil, err
		}
		for _, w := range wires {
			// A first round warms the connections; the engine alone is measured right
			// before, so that both meet the same noise.
			for _, warm := range [][]target{plain, sessions} {
				over := w
				if warm[0].name == "direct" {
					over = wires[0]
				}
				if _, _, err := flows(ctx, client, warm, over, 1); err != nil {
					return nil, err
				}
			}
			first, gap, err := flows(ctx, client, plain, wires[0], rounds)
			if err != nil {
				return nil, err
			}
			f, g, err := flows(ctx, client, sessions, w, rounds)
			if err != nil {
				return nil, err
			}
			fig := figure{
				what:     fmt.Sprintf("%s, %d streams: added time to first token, worst gap", w.name, streams),
				measured: fmt.Sprintf("%s, %s (engine %s)", short(f-first), short(g), short(gap)),
				met:      f-first <= time.Millisecond,
			}
			if streams == 1 {
				fig.bar = "≤ 1 ms; the engine's pause is 20 ms"
			}
			figures = append(figures, fig)
		}
		client.CloseIdleConnections()
	}
	return figures, nil
}
