package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/agent"
	"polar/sim"
)

func environ() []string { return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} }

func startSim(t *testing.T, c sim.Config) (*sim.Server, string) {
	t.Helper()
	server, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return server, serve(t, server)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// policy is a simulation that follows rules given in YAML.
func policy(t *testing.T, yaml string) sim.Config {
	t.Helper()
	c, err := sim.Parse([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// logged is a line of the agent's log.
type logged struct {
	Type         string          `json:"type"`
	Step         int             `json:"step"`
	Messages     int             `json:"messages"`
	Message      json.RawMessage `json:"message"`
	FinishReason string          `json:"finish_reason"`
	ToolCallID   string          `json:"tool_call_id"`
	Content      string          `json:"content"`
}

func readLog(t *testing.T, log *bytes.Buffer, kind string) []logged {
	t.Helper()
	var out []logged
	for line := range strings.Lines(log.String()) {
		var l logged
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if l.Type == kind {
			out = append(out, l)
		}
	}
	return out
}

// results are what the tools returned in a run of the given policy.
func results(t *testing.T, yaml string, more func(*agent.Config)) []string {
	t.Helper()
	_, url := startSim(t, policy(t, yaml))
	var log bytes.Buffer
	c := agent.Config{BaseURL: url, Instruction: "go", Workdir: t.TempDir(), Env: environ(), Log: &log, Stream: true}
	if more != nil {
		more(&c)
	}
	if _, err := agent.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range readLog(t, &log, "tool_result") {
		out = append(out, l.Content)
	}
	return out
}

func TestATaskIsDoneInTheWorkFolder(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"streamed": true, "in one piece": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := startSim(t, policy(t, `
rules:
  - {when: {tool_results: 0}, think: I write it., say: Writing., shell: 'printf "made by %s" "$WHO" > made.txt; pwd'}
  - {say: All done.}
`))
			dir := t.TempDir()
			var log bytes.Buffer
			out, err := agent.Run(t.Context(), agent.Config{
				BaseURL: url, Instruction: "Make a file", Workdir: dir, Env: append(environ(), "WHO=mini"), Log: &log, Stream: stream,
			})
			if diff := cmp.Diff(agent.Outcome{Steps: 2, Final: "All done.", Reason: agent.Done}, out); err != nil || diff != "" {
				t.Fatalf("%v %s", err, diff)
			}
			if got, _ := os.ReadFile(filepath.Join(dir, "made.txt")); string(got) != "made by mini" {
				t.Errorf("the file holds %q", got)
			}
			requests, tools := readLog(t, &log, "request"), readLog(t, &log, "tool_result")
			if len(requests) != 2 || requests[0].Messages != 2 || requests[1].Messages != 4 {
				t.Errorf("requests logged: %+v", requests)
			}
			if len(tools) != 1 || tools[0].Content != "exit code 0\n"+dir+"\n" {
				t.Errorf("tool results logged: %+v", tools)
			}
		})
	}
}

// TestTheHistoryIsSentBackAsItCame compares the simulated server's own record:
// the second prompt begins with the first and all that was sampled after it.
func TestTheHistoryIsSentBackAsItCame(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"streamed": true, "in one piece": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, url := startSim(t, policy(t, `
rules:
  - when: {tool_results: 0}
    think: "Grüße,\nand <b> & so on"
    say: "Two at once:\n"
    call:
      - {tool: bash, arguments: '{ "command":"echo 1.0" , "x": 1.50 }'}
      - {tool: bash, arguments: '{"command": "echo \u00fc"}'}
  - {say: Done.}
`))
			_, err := agent.Run(t.Context(), agent.Config{BaseURL: url, Instruction: "go", Workdir: t.TempDir(), Env: environ(), Stream: stream})
			calls := server.Calls()
			if err != nil || len(calls) != 2 {
				t.Fatalf("%d calls, %v", len(calls), err)
			}
			want := append(append([]int32{}, calls[0].PromptIDs...), calls[0].TokenIDs...)
			if got := []int32(calls[1].PromptIDs); len(got) < len(want) || !cmp.Equal(got[:len(want)], want) {
				t.Errorf("the second prompt does not extend the first turn:\n%s\n---\n%s", sim.Decode(got), sim.Decode(want))
			}
		})
	}
}

func TestAllCallsOfATurnAreRunInOrder(t *testing.T) {
	t.Parallel()
	got := results(t, `
rules:
  - {when: {tool_results: 0}, shell: [echo one > f, cat f; echo two >> f, cat f]}
  - {when: {tool_results: 3}, say: Done.}
`, nil)
	want := []string{"exit code 0\n(no output)", "exit code 0\none\n", "exit code 0\none\ntwo\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatTheModelDoesWrongIsToldToIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ call, want string }{
		"broken JSON":         {`{tool: bash, arguments: '{"command": "ls'}`, "error: the arguments are not valid JSON"},
		"no object":           {`{tool: bash, arguments: '[]'}`, "error: the arguments are not valid JSON: an object"},
		"no command":          {`{tool: bash, arguments: '{"cmd": "ls"}'}`, "error: the argument command is wrong"},
		"a command by number": {`{tool: bash, arguments: '{"command": 3}'}`, "error: the argument command is wrong: a string expected, got a number"},
		"an unknown tool":     {`{tool: web_search, arguments: '{}'}`, `error: there is no tool "web_search"`},
		"a failing command":   {`{tool: bash, arguments: '{"command": "echo oops >&2; exit 3"}'}`, "exit code 3\noops\n"},
		"a killed command":    {`{tool: bash, arguments: '{"command": "kill -9 $$"}'}`, "killed by signal: killed"},
		"bytes, not text":     {`{tool: bash, arguments: '{"command": "printf \"a\\377b\""}'}`, "exit code 0\na�b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := results(t, "rules: [{when: {tool_results: 0}, call: ["+c.call+"]}, {say: Done.}]", nil)
			if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLongOutputKeepsItsHeadAndTail(t *testing.T) {
	t.Parallel()
	got := results(t, `rules: [{when: {tool_results: 0}, shell: 'echo first; seq 1 100000; echo last'}, {say: Done.}]`,
		func(c *agent.Config) { c.MaxOutputBytes = 1000 })
	text := got[0]
	if len(text) > 1100 || !strings.HasPrefix(text, "exit code 0\nfirst\n1\n") || !strings.HasSuffix(text, "100000\nlast\n") || !strings.Contains(text, "bytes left out]") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func TestACommandThatTakesTooLongIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := results(t, `rules: [{when: {tool_results: 0}, shell: 'echo started; sleep 300 & echo $! > child; wait'}, {say: Done.}]`,
		func(c *agent.Config) { c.CommandTimeout, c.Workdir = 2*time.Second, dir })
	if diff := cmp.Diff([]string{"killed after 2s, the time limit of a command\nstarted\n"}, got); diff != "" {
		t.Error(diff)
	}
	gone(t, filepath.Join(dir, "child"))
}

func TestWhatACommandLeavesBehindEndsWithTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := results(t, `
rules:
  - {when: {tool_results: 0}, shell: 'sleep 300 & echo $! > child'}
  - {when: {tool_results: 1}, shell: 'kill -0 $(cat child) && echo alive'}
  - {say: Done.}
`, func(c *agent.Config) { c.Workdir = dir })
	if diff := cmp.Diff([]string{"exit code 0\n(no output)", "exit code 0\nalive\n"}, got); diff != "" {
		t.Error(diff)
	}
	gone(t, filepath.Join(dir, "child"))
}

// gone waits until the process whose id a file holds is no more.
func gone(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "process "+strconv.Itoa(pid)+" ends", func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // a zombie is dead, if nobody reaps here
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func TestCancellingEndsTheCommandAndTheRun(t *testing.T) {
	t.Parallel()
	_, url := startSim(t, policy(t, `rules: [{when: {tool_results: 0}, shell: 'sleep 300 & echo $! > child.new; mv child.new child; wait'}]`))
	dir := t.TempDir()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		_, err = agent.Run(ctx, agent.Config{BaseURL: url, Instruction: "go", Workdir: dir, Env: environ()})
	})
	eventually(t, "the command starts", func() bool {
		_, err := os.Stat(filepath.Join(dir, "child"))
		return err == nil
	})
	cancel(cause)
	wg.Wait()
	if !errors.Is(err, cause) {
		t.Errorf("run ended with %v, want the cause of the cancel", err)
	}
	gone(t, filepath.Join(dir, "child"))
}

func TestAModelThatNeverEndsMeetsTheStepLimit(t *testing.T) {
	t.Parallel()
	server, url := startSim(t, policy(t, `rules: [{say: More., shell: 'true'}]`))
	out, err := agent.Run(t.Context(), agent.Config{BaseURL: url, Instruction: "go", Workdir: t.TempDir(), Env: environ(), MaxSteps: 3})
	if diff := cmp.Diff(agent.Outcome{Steps: 3, Final: "More.", Reason: agent.StepLimit}, out); !errors.Is(err, agent.ErrStepLimit) || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if n := len(server.Calls()); n != 3 {
		t.Errorf("%d model calls, want 3", n)
	}
}

func TestFaultsThatPassAreRetried(t *testing.T) {
	t.Parallel()
	const rules = "rules: [{when: {tool_results: 0}, think: Hm., shell: 'echo x >> count'}, {say: Done.}]\n"
	for name, fault := range map[string]string{
		"an overloaded server":          `{kind: status, status: 500, calls: [1, 2, 4]}`,
		"too many requests":             `{kind: status, status: 429, retry_after: "0.01", calls: [1]}`,
		"a dropped connection":          `{kind: drop, calls: [1, 3]}`,
		"an answer cut at its start":    `{kind: cut, after_tokens: 0, calls: [1]}`,
		"an answer cut in a tool call":  `{kind: cut, after_tokens: 20, calls: [1]}`,
		"an answer cut before the last": `{kind: cut, after_tokens: 100000, calls: [1, 3]}`,
	} {
		for mode, stream := range map[string]bool{"streamed": true, "in one piece": false} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				server, url := startSim(t, policy(t, rules+"faults: ["+fault+"]\n"))
				out, err := agent.Run(t.Context(), agent.Config{
					BaseURL: url, Instruction: "go", Workdir: dir, Env: environ(), Backoff: time.Millisecond, Stream: stream,
				})
				if err != nil || out.Final != "Done." || out.Steps != 2 {
					t.Fatalf("%+v, %v", out, err)
				}
				if got, _ := os.ReadFile(filepath.Join(dir, "count")); string(got) != "x\n" {
					t.Errorf("the command ran other than once: %q", got)
				}
				if n := len(server.Calls()); n < 3 {
					t.Errorf("%d calls reached the server, want a retry", n)
				}
			})
		}
	}
}

func TestRetriesAreCountedInAHeader(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var counts, keys []string
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		counts = append(counts, r.Header.Get("X-Stainless-Retry-Count"))
		keys = append(keys, r.Header.Get("Authorization"))
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}))
	_, err := agent.Run(t.Context(), agent.Config{BaseURL: url + "/", APIKey: "k", Instruction: "go", Retries: 2, Backoff: time.Millisecond})
	if err == nil || err.Error() != "model call 1: after 3 tries: 503 Service Unavailable: busy" {
		t.Errorf("got error %v", err)
	}
	if diff := cmp.Diff([]string{"0", "1", "2"}, counts); diff != "" {
		t.Error(diff)
	}
	if keys[0] != "Bearer k" {
		t.Errorf("authorization %q", keys[0])
	}
}

func TestARefusalIsFinal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		retry  string
		body   string
		want   string
	}{
		"a wrong key":                      {401, "", `{"error":{"message":"unknown\n key"}}`, "model call 1: 401 Unauthorized: unknown key"},
		"a bad request":                    {400, "", `{"message":"no"}`, "model call 1: 400 Bad Request: no"},
		"a spent budget, if said to be so": {429, "false", `spent`, "model call 1: 429 Too Many Requests: spent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			n := 0
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				n++
				if c.retry != "" {
					w.Header().Set("X-Should-Retry", c.retry)
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			_, err := agent.Run(t.Context(), agent.Config{BaseURL: url, Instruction: "go"})
			if err == nil || err.Error() != c.want || n != 1 {
				t.Errorf("after %d calls got error %v, want %s", n, err, c.want)
			}
		})
	}
}

func TestBrokenStreamsAreErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stream, want string }{
		"no finish reason":        {"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n", "the stream ended without a finish reason"},
		"an end in the middle":    {"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "the stream was cut off"},
		"an error in the midst":   {"data: {\"error\":{\"message\":\"out of memory\"}}\n\n", "error in the stream: out of memory"},
		"a chunk that is no JSON": {"data: {\"choices\":[}\n\n", "read a chunk: not valid JSON"},
		"a tool call far out":     {"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":99999999}]}}]}\n\n", "out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write([]byte(c.stream))
			}))
			_, err := agent.Run(t.Context(), agent.Config{BaseURL: url, Instruction: "go", Retries: -1, Stream: true})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with %q", err, c.want)
			}
		})
	}
}

func TestAMissingSettingIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config agent.Config
		want   string
	}{
		"no URL":         {agent.Config{Instruction: "go"}, "base URL"},
		"no instruction": {agent.Config{BaseURL: "http://127.0.0.1:1/v1"}, "instruction"},
		"no step":        {agent.Config{BaseURL: "http://127.0.0.1:1/v1", Instruction: "go", MaxSteps: -1}, "max steps"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := agent.Run(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}
