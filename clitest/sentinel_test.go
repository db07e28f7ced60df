package clitest_test

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// sentinel stands as the proxy to the world outside. CLIs that are asked to be
// quiet have no business there.
type sentinel struct {
	url string

	mu    sync.Mutex
	heard []string
}

func newSentinel(t *testing.T) *sentinel {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sentinel{url: "http://" + listener.Addr().String()}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n') // who says nothing was there too
			s.mu.Lock()
			s.heard = append(s.heard, strings.TrimSpace(line))
			s.mu.Unlock()
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		ended.Wait()
	})
	return s
}

// env makes programs go through the sentinel for everything but this machine.
func (s *sentinel) env() map[string]string {
	env := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env[name], env[strings.ToLower(name)] = s.url, s.url
	}
	env["NO_PROXY"], env["no_proxy"] = "127.0.0.1,localhost", "127.0.0.1,localhost"
	return env
}

// requests are the first lines of what was asked of it.
func (s *sentinel) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.heard...)
}

func TestTheSentinelHearsWhoPhonesHome(t *testing.T) {
	t.Parallel()
	s := newSentinel(t)
	proxy, err := url.Parse(s.env()["HTTPS_PROXY"])
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://telemetry.invalid/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("it was answered")
	}
	if got := s.requests(); len(got) != 1 || !strings.HasPrefix(got[0], "CONNECT telemetry.invalid:443") {
		t.Errorf("heard %q", got)
	}
}
