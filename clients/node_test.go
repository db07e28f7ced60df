package clients_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"polar/polartest"
)

// npmClients are the clients from npm. The test is skipped where they cannot be
// had, which is a failure where CI is set.
func npmClients(t *testing.T) []client {
	t.Helper()
	node, err := findNode(t.Context())
	var modules string
	if err == nil {
		modules, err = npmInstall(t.Context(), "node", filepath.Join("openai", "package.json"))
	}
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal(err)
	case err != nil:
		t.Skipf("the clients from npm cannot be had here: %v", err)
	}
	scripts := gatherScripts(t, modules)
	var out []client
	for _, c := range []struct{ name, wire, script string }{
		{"openai chat", "chat", "openai-chat"},
		{"openai responses", "responses", "openai-responses"},
		{"@anthropic-ai sdk", "anthropic", "anthropic"},
		{"@google genai", "gemini", "genai"},
	} {
		out = append(out, startNode(t, node, scripts, c.script).client(c.name, c.wire))
	}
	return out
}

// gatherScripts makes a folder in which the scripts find what is installed.
func gatherScripts(t *testing.T, modules string) string {
	t.Helper()
	dir := t.TempDir()
	scripts, err := filepath.Glob(filepath.Join("node", "*.mjs"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts for Node: %v", err)
	}
	for _, script := range scripts {
		data, err := os.ReadFile(script)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(script)), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nodeProcess is a client in a process of Node (node/main.mjs).
type nodeProcess struct {
	requests io.Writer

	mu      sync.Mutex
	last    int
	talks   int
	waiting map[int]chan nodeReply
	ended   bool
}

type nodeRequest struct {
	ID   int    `json:"id"`
	Talk int    `json:"talk"`
	Op   string `json:"op"`
	Args any    `json:"args"`
}

type nodeReply struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *refusal        `json:"error"`
}

func startNode(t *testing.T, node, dir, script string) *nodeProcess {
	t.Helper()
	cmd := exec.Command(node, "main.mjs", script)
	cmd.Dir = dir
	cmd.SysProcAttr = polartest.DieWithParent()
	var log polartest.Buffer
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &nodeProcess{requests: stdin, waiting: map[int]chan nodeReply{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.listen(stdout)
		_ = cmd.Wait() // its log says why
	}()
	t.Cleanup(func() {
		polartest.Stop(cmd, ended)
		if t.Failed() && log.String() != "" {
			t.Logf("log of %s:\n%s", script, log.String())
		}
	})
	return p
}

// listen hands out replies until there are no more.
func (p *nodeProcess) listen(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var reply nodeReply
		if err := json.Unmarshal(line, &reply); err != nil {
			reply.Error = &refusal{Message: "not a reply: " + string(line)}
		}
		p.mu.Lock()
		if waiting := p.waiting[reply.ID]; waiting != nil {
			waiting <- reply
		}
		delete(p.waiting, reply.ID)
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, waiting := range p.waiting {
		close(waiting)
	}
}

var errNodeEnded = errors.New("the process of Node has ended")

// do makes a request and reads the result into out.
func (p *nodeProcess) do(ctx context.Context, talk int, op string, args, out any) error {
	reply := make(chan nodeReply, 1)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return errNodeEnded
	}
	p.last++
	p.waiting[p.last] = reply
	line, err := json.Marshal(nodeRequest{ID: p.last, Talk: talk, Op: op, Args: args})
	if err == nil {
		_, err = p.requests.Write(append(line, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r, ok := <-reply:
		switch {
		case !ok:
			return errNodeEnded
		case r.Error != nil && r.Error.Status == 0:
			return errors.New(r.Error.Message)
		case r.Error != nil:
			return r.Error
		}
		return json.Unmarshal(r.Result, out)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *nodeProcess) client(name, wire string) client {
	return client{name: name, wire: wire, open: func(t *testing.T, to endpoint) conversation {
		t.Helper()
		p.mu.Lock()
		p.talks++
		talk := nodeTalk{p, p.talks}
		p.mu.Unlock()
		if err := p.do(t.Context(), talk.number, "open", to, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		return talk
	}}
}

// nodeTalk is a conversation that a client in Node keeps.
type nodeTalk struct {
	process *nodeProcess
	number  int
}

type askArgs struct {
	Question question   `json:"question"`
	Tools    []nodeTool `json:"tools"`
}

type nodeTool struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Schema      map[string]any `json:"schema"`
}

func asking(q question) askArgs {
	args := askArgs{Question: q}
	for _, t := range tools() {
		args.Tools = append(args.Tools, nodeTool{t.name, t.description, t.schema()})
	}
	return args
}

func (k nodeTalk) ask(ctx context.Context, q question) (out answer, err error) {
	err = k.process.do(ctx, k.number, "ask", asking(q), &out)
	return out, err
}

func (k nodeTalk) give(ctx context.Context, results []string) (out answer, err error) {
	err = k.process.do(ctx, k.number, "give", map[string]any{"results": results}, &out)
	return out, err
}

func (k nodeTalk) count(ctx context.Context, q question) (n int, err error) {
	err = k.process.do(ctx, k.number, "count", asking(q), &n)
	return n, err
}

func (k nodeTalk) models(ctx context.Context) (names []string, err error) {
	err = k.process.do(ctx, k.number, "models", nil, &names)
	return names, err
}
