package clients_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/polartest"
)

// modelServed is what every call is answered with, whatever was asked for.
const modelServed = "sim"

// rig is polar serve before a simulated engine.
type rig struct {
	gateway, rollout string
	sim              string // "" if there is no engine

	mu sync.Mutex
	// known are the numbers of the simulator's calls that a record was found for.
	known map[int]bool
}

// newRig starts both. more is appended to the policy file; flags are for the
// simulator.
func newRig(t *testing.T, more string, flags ...string) *rig {
	t.Helper()
	policy, err := os.ReadFile("testdata/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, append(policy, more...), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"sim", "--listen", "127.0.0.1:0", "--policy", file}, flags...)
	sim := polartest.Start(t, *polarBinary, nil, args, `on (http://[^ ,]+)`)[0]
	r := serveBefore(t, sim)
	r.sim = sim
	for _, c := range r.simCalls(t) { // those of the service itself
		r.known[c.Number] = true
	}
	return r
}

// serveBefore starts polar serve before an engine, which need not be there.
func serveBefore(t *testing.T, engine string) *rig {
	t.Helper()
	urls := polartest.Start(t, *polarBinary, nil, []string{
		"serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0",
		"--engine-url", engine, "--model", modelServed, "--run-workers", "16",
	}, `^rollout server +(\S+)`, `^gateway +(\S+)`)
	r := &rig{rollout: urls[0], gateway: urls[1], known: map[int]bool{}}
	polartest.Eventually(t, func() string {
		for _, url := range urls {
			resp, err := http.Get(url + "/health")
			if err != nil {
				return err.Error()
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return url + " is " + resp.Status
			}
		}
		return ""
	})
	return r
}

// session is a recording session as somebody who starts a harness by hand has it.
type session struct {
	rig *rig
	ID  string `json:"session_id"`
	Key string `json:"api_key"`
}

func (r *rig) openSession(t *testing.T) *session {
	t.Helper()
	s := &session{rig: r}
	polartest.Request(t, http.MethodPost, r.gateway+"/sessions", map[string]any{}, s)
	return s
}

// recorded is a call as the gateway shows it.
type recorded struct {
	ID       string `json:"call_id"`
	Wire     string `json:"wire"`
	Stream   bool   `json:"stream"`
	Asked    string `json:"model_asked"`
	Served   string `json:"model_served"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Finish      string          `json:"finish"`
	Delivered   bool            `json:"delivered"`
	Untrainable string          `json:"untrainable"`
	PromptIDs   []int32         `json:"prompt_ids"`
	TokenIDs    []int32         `json:"response_ids"`
	Logprobs    json.RawMessage `json:"response_logprobs"`
	Error       *struct {
		Kind   string `json:"kind"`
		Status int    `json:"status"`
	} `json:"error"`
}

func (s *session) calls(t *testing.T) []recorded {
	t.Helper()
	var page struct{ Completions []recorded }
	polartest.Request(t, http.MethodGet, s.rig.gateway+"/sessions/"+s.ID+"/completions", nil, &page)
	return page.Completions
}

// last is the newest call of a session that has n.
func (s *session) last(t *testing.T, n int) recorded {
	t.Helper()
	calls := s.calls(t)
	if len(calls) != n {
		t.Fatalf("%d calls are recorded, want %d", len(calls), n)
	}
	return calls[n-1]
}

// simCall is a call as the simulator recorded it. Ids and logprobs are left in
// JSON: there are many, and few are looked at.
type simCall struct {
	Number    int             `json:"number"`
	PromptIDs json.RawMessage `json:"prompt_token_ids"`
	TokenIDs  json.RawMessage `json:"token_ids"`
	Logprobs  json.RawMessage `json:"logprobs"`
	Text      string          `json:"text"`
	Ended     string          `json:"ended"`
}

// tokens are the ids that were sampled.
func (c simCall) tokens(t *testing.T) []int32 {
	t.Helper()
	var ids []int32
	if err := json.Unmarshal(c.TokenIDs, &ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

func (r *rig) simCalls(t *testing.T) []simCall {
	t.Helper()
	var page struct{ Calls []simCall }
	polartest.Request(t, http.MethodGet, r.sim+"/sim/calls", nil, &page)
	return page.Calls
}

// claim finds the one call of the simulator that has the prompt of c and was
// not claimed yet. Prompts differ, since each test says something of its own.
func (r *rig) claim(t *testing.T, c recorded) simCall {
	t.Helper()
	calls := r.simCalls(t)
	prompt, err := json.Marshal(c.PromptIDs)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range calls {
		if !r.known[s.Number] && bytes.Equal(s.PromptIDs, prompt) {
			r.known[s.Number] = true
			return s
		}
	}
	t.Fatalf("the simulator knows of no call with the prompt of %s, which has %d tokens", c.ID, len(c.PromptIDs))
	return simCall{}
}

// checkAllKnown fails if the simulator answered a call that no test knows of.
func (r *rig) checkAllKnown(t *testing.T) {
	t.Helper()
	for _, c := range r.simCalls(t) {
		if !r.known[c.Number] && c.Ended != "refused" {
			t.Errorf("the simulator answered call %d (%s), which no test has a record of: %q", c.Number, c.Ended, c.Text)
		}
	}
}

// checkWhole holds a call that was answered against the simulator's record.
func (r *rig) checkWhole(t *testing.T, c recorded, want answer) {
	t.Helper()
	said := r.claim(t, c)
	if diff := cmp.Diff(said.tokens(t), c.TokenIDs); diff != "" {
		t.Errorf("sampled ids (-simulator +record):\n%s", diff)
	}
	if diff := cmp.Diff(string(said.Logprobs), string(c.Logprobs)); diff != "" {
		t.Errorf("logprobs (-simulator +record):\n%s", diff)
	}
	if said.Ended != "finished" || said.Text != want.Text {
		t.Errorf("the simulator's call is %s with the text %q, the client read %q", said.Ended, said.Text, want.Text)
	}
	switch {
	case !c.Delivered:
		t.Error("the call is not marked as delivered")
	case c.Error != nil:
		t.Errorf("the call is recorded with the error %+v", *c.Error)
	case c.Untrainable != "":
		t.Errorf("the call cannot be trained on: %s", c.Untrainable)
	case c.Served != modelServed:
		t.Errorf("the model served is %q", c.Served)
	}
}
