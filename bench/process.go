package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// rig is an engine in this process with a reverse proxy and a polar in front of
// it, each in a process of its own.
type rig struct {
	engineURL string
	proxyURL  string
	rollout   string
	gateway   string
	dataDir   string
	polarPID  int
	stop      func()
}

func (b *bench) newRig(ctx context.Context, e *engine) (*rig, error) {
	ctx, cancel := context.WithCancel(ctx)
	l, err := loopback(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	dir, err := os.MkdirTemp("", "polar-bench-")
	if err != nil {
		cancel()
		return nil, err
	}
	r := &rig{engineURL: "http://" + l.Addr().String(), dataDir: dir}
	var procs []*exec.Cmd
	r.stop = func() {
		cancel()
		for _, p := range procs {
			_ = p.Wait()
		}
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}
	ports, err := freePorts(ctx, 3)
	if err != nil {
		r.stop()
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		r.stop()
		return nil, err
	}
	args := []string{
		"serve", "--data-dir", filepath.Join(dir, "data"), "--listen", ports[1], "--gateway-listen", ports[2],
		"--engine-url", r.engineURL, "--log-level", "error",
	}
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(ctx, self, "proxy", ports[0], r.engineURL),
		exec.CommandContext(ctx, b.polar, args...),
	} {
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			r.stop()
			return nil, err
		}
		procs = append(procs, cmd)
	}
	r.polarPID = procs[1].Process.Pid
	r.proxyURL, r.rollout, r.gateway = "http://"+ports[0], "http://"+ports[1], "http://"+ports[2]
	for _, url := range []string{r.proxyURL + "/v1/models", r.rollout + "/health", r.gateway + "/health"} {
		if err := await(ctx, url); err != nil {
			r.stop()
			return nil, err
		}
	}
	return r, nil
}

// session opens a recording session at the gateway.
func (r *rig) session(ctx context.Context) (target, error) {
	var reply struct {
		Key string `json:"api_key"`
	}
	err := post(ctx, r.gateway+"/sessions", []byte(`{}`), &reply)
	return target{name: "polar", url: r.gateway, key: reply.Key}, err
}

func (r *rig) sessions(ctx context.Context, n int) ([]target, error) {
	var out []target
	for range n {
		t, err := r.session(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func loopback(ctx context.Context) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
}

func freePorts(ctx context.Context, n int) ([]string, error) {
	var out []string
	for range n {
		l, err := loopback(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

func await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			return resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not come up: %w", url, err)
		case <-tick.C:
		}
	}
}

func post(ctx context.Context, url string, payload []byte, reply any) error {
	return exchange(ctx, http.MethodPost, url, payload, reply)
}

func get(ctx context.Context, url string, reply any) error {
	return exchange(ctx, http.MethodGet, url, nil, reply)
}

func exchange(ctx context.Context, method, url string, payload []byte, reply any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(reply)
}

// rss is the resident memory of a process, in bytes.
func rss(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS for process %d", pid)
}
