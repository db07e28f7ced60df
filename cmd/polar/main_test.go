package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"polar/api"
	"polar/sim"
)

// TestMain lets the test binary be polar when it is called polar: by scripts,
// by the servers that tests start, and by the mini harness inside them.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"polar": main})
}

// TestScripts runs the command line as a user types it.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			root, err := filepath.Abs("../..")
			if err != nil {
				return err
			}
			env.Setenv("REPO", root)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start":    scriptStart,
			"for-help": scriptHelp,
		},
	})
}

// scriptStart starts polar serve with a simulated inference server and puts
// their addresses into the environment; both end with the script.
func scriptStart(ts *testscript.TestScript, _ bool, args []string) {
	engine, stop, err := startSim(sim.Defaults())
	ts.Check(err)
	ts.Defer(stop)
	s := &server{dataDir: ts.MkAbs("data"), engineURL: engine, flags: args}
	ts.Check(s.start())
	ts.Defer(func() { s.kill() })
	ts.Setenv("ROLLOUT", s.rollout)
	ts.Setenv("GATEWAY", s.gateway)
	ts.Setenv("LISTEN", s.listen)
	ts.Setenv("ENGINE", engine)
}

// scriptHelp checks that each command named has help with an example.
func scriptHelp(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		ts.Check(ts.Exec("polar", name, "--help"))
		if out := ts.ReadFile("stdout"); !strings.Contains(out, "Examples:\n") {
			ts.Fatalf("polar %s --help has no example:\n%s", name, out)
		}
	}
}

// startSim serves a simulated inference server on a free port.
func startSim(cfg sim.Config) (url string, stop func(), err error) {
	engine, err := sim.New(cfg)
	if err != nil {
		return "", nil, err
	}
	l, err := listenOn(context.Background(), "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serveHTTP(ctx, l, engine) }()
	return "http://" + l.Addr().String(), func() { cancel(); <-done }, nil
}

// server is a polar serve in a process of its own, on ports that stay the same
// when it is started again.
type server struct {
	dataDir, engineURL string
	flags              []string
	rollout, gateway   string
	listen, through    string
	cmd                *exec.Cmd
	ended              chan error
	stderr             *bytes.Buffer
}

func (s *server) start() error {
	if s.listen == "" {
		for _, address := range []*string{&s.listen, &s.through} {
			l, err := listenOn(context.Background(), "127.0.0.1:0")
			if err != nil {
				return err
			}
			*address = l.Addr().String()
			if err := l.Close(); err != nil {
				return err
			}
		}
		s.rollout, s.gateway = "http://"+s.listen, "http://"+s.through
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{
		"polar", "serve", "--data-dir", s.dataDir, "--listen", s.listen, "--gateway-listen", s.through,
		"--engine-url", s.engineURL, "--log-level", "warn",
	}, s.flags...)
	s.stderr = &bytes.Buffer{}
	s.cmd = &exec.Cmd{Path: self, Args: args, Stderr: s.stderr, Env: []string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + os.TempDir()}}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.cmd.Wait() }()
	return s.awaitHealth()
}

// awaitHealth returns when the server answers, or with what it said when it
// ended instead.
func (s *server) awaitHealth() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.rollout+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case ended := <-s.ended:
			s.cmd = nil
			return fmt.Errorf("polar serve ended: %w: %s", ended, strings.TrimSpace(s.stderr.String()))
		case <-ctx.Done():
			s.kill()
			return fmt.Errorf("polar serve did not answer: %w: %s", err, strings.TrimSpace(s.stderr.String()))
		case <-tick.C:
		}
	}
}

// kill ends the server as kill -9 does.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.cmd = nil
	}
}

func (s *server) client() *api.Client { return &api.Client{URL: s.rollout} }
