package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// target is one way to the engine.
type target struct {
	name string
	url  string
	key  string
}

// client keeps enough connections for every stream that is open at once.
func newClient(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConns: connections, MaxIdleConnsPerHost: connections, DisableCompression: true,
		DialContext: (&net.Dialer{}).DialContext,
	}}
}

// body is a request of about size bytes that asks for what training needs. Its
// history is turns of 4 KB: one of a larger size begins with the same turns.
func body(size int) []byte {
	const turn = 4 << 10
	out := []byte(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"logprobs":true,"return_token_ids":true,"messages":[`)
	for i := 0; i == 0 || len(out) < size; i++ {
		role, n := "user", min(turn, max(size-len(out), 16))
		if i > 0 {
			out = append(out, ',')
			n = turn
		}
		if i%2 == 1 {
			role = "assistant"
		}
		out = fmt.Appendf(out, `{"role":%q,"content":"%d %s"}`, role, i, strings.Repeat("history ", n/8))
	}
	return append(out, "]}"...)
}

// call makes one call and reads it to its end. It returns when the first byte
// after the headers came and when the last did.
func call(ctx context.Context, c *http.Client, t target, payload []byte) (first, whole time.Duration, err error) {
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/v1/chat/completions", bytes.NewReader(payload))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+t.key)
	resp, err := c.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	buf := make([]byte, 64<<10)
	n, err := resp.Body.Read(buf)
	first = time.Since(start)
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("%s: %s: %s", t.name, resp.Status, buf[:n])
	}
	tail := append([]byte(nil), buf[:n]...)
	size := n
	for err == nil {
		n, err = resp.Body.Read(buf)
		size += n
		tail = append(tail, buf[:n]...)
		tail = tail[max(0, len(tail)-64):]
	}
	if !errors.Is(err, io.EOF) {
		return 0, 0, fmt.Errorf("%s: after %d bytes: %w", t.name, size, err)
	}
	if !bytes.Contains(tail, []byte("[DONE]")) {
		return 0, 0, fmt.Errorf("%s: the answer did not end", t.name)
	}
	return first, time.Since(start), nil
}

// medians calls each target in turn, so that noise hits all alike, and returns
// the median of each in the order given.
func medians(ctx context.Context, c *http.Client, targets []target, payload []byte, rounds int) (first, whole []time.Duration, err error) {
	firsts, wholes := make([][]time.Duration, len(targets)), make([][]time.Duration, len(targets))
	for round := range rounds + rounds/10 {
		for i, t := range targets {
			f, w, err := call(ctx, c, t, payload)
			if err != nil {
				return nil, nil, err
			}
			if round >= rounds/10 { // the first tenth warms up
				firsts[i], wholes[i] = append(firsts[i], f), append(wholes[i], w)
			}
		}
	}
	for i := range targets {
		first, whole = append(first, percentile(firsts[i], 50)), append(whole, percentile(wholes[i], 50))
	}
	return first, whole, nil
}

func percentile(d []time.Duration, p int) time.Duration {
	slices.Sort(d)
	return d[min(len(d)*p/100, len(d)-1)]
}

// turns runs sessions side by side, each a conversation that grows by grow
// bytes a turn, and returns turns a second.
func turns(ctx context.Context, c *http.Client, targets []target, turns, grow int) (float64, error) {
	start := time.Now()
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			for turn := range turns {
				if _, _, err := call(ctx, c, t, body(1024+turn*grow)); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return float64(len(targets)*turns) / time.Since(start).Seconds(), nil
}
