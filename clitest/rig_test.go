package clitest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"polar"
	"polar/api"
	"polar/polartest"
	"polar/sim"
)

// rig is polar serve before a simulated engine.
type rig struct {
	sim, rollout, data string
	// probes is how many calls the service itself made of the engine.
	probes int
}

// junk begins every value of the host's environment that must be seen nowhere.
const junk = "leak-of-the-host"

// poison is an environment that would lead any of the CLIs astray.
func poison() []string {
	var env []string
	for _, name := range []string{
		"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL",
		"ANTHROPIC_MODEL", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_MODEL", "CODEX_HOME", "CODEX_API_KEY",
		"CLAUDE_CONFIG_DIR", "OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "PI_CODING_AGENT_DIR", "QWEN_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
		"HTTP_PROXY", "HTTPS_PROXY", "NPM_CONFIG_PREFIX",
	} {
		env = append(env, name+"="+junk+"/"+name)
	}
	return append(env, "NODE_OPTIONS=--require="+junk)
}

// newRig starts both. between is what stands between the gateway and the
// simulator, or nil.
func newRig(t *testing.T, policy string, between func(t *testing.T, engine string) string) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &rig{data: filepath.Join(t.TempDir(), "data")}
	r.sim = polartest.Start(t, *polarBinary, nil, []string{"sim", "--listen", "127.0.0.1:0", "--policy", file}, `on (http://[^ ,]+)`)[0]
	engine := r.sim
	if between != nil {
		engine = between(t, engine)
	}
	r.rollout = polartest.Start(t, *polarBinary, poison(), []string{
		"serve", "--data-dir", r.data, "--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0",
		"--engine-url", engine, "--run-workers", strconv.Itoa(atOnce),
	}, `^rollout server +(\S+)`)[0]
	polartest.Eventually(t, func() string {
		calls := r.simCalls(t)
		if len(calls) == 0 || calls[0].Ended == sim.EndNotYet {
			return "the service has not tried its engine"
		}
		r.probes = len(calls)
		return ""
	})
	return r
}

// atOnce is how many sessions a node runs at once.
const atOnce = 8

func (r *rig) simCalls(t *testing.T) []sim.Recorded {
	t.Helper()
	var page struct{ Calls []sim.Recorded }
	polartest.Request(t, http.MethodGet, r.sim+"/sim/calls", nil, &page)
	return page.Calls
}

// results are those of the first n sessions that end, by their tasks.
func (r *rig) results(t *testing.T, n int) map[polar.TaskID]polar.Result {
	t.Helper()
	out := map[polar.TaskID]polar.Result{}
	for len(out) < n {
		var page api.ResultsPage
		polartest.Request(t, http.MethodGet, r.rollout+"/rollout/results?consumer=clitest&wait=30s&limit=100", nil, &page)
		for _, raw := range page.Results {
			var result polar.Result
			if err := json.Unmarshal(raw, &result); err != nil {
				t.Fatal(err)
			}
			out[result.Task] = result
		}
		polartest.Request(t, http.MethodPost, r.rollout+"/rollout/results/ack", api.AckRequest{Consumer: "clitest", Cursor: page.Cursor}, nil)
	}
	return out
}

// calls are the recorded calls of one attempt at a session.
func (r *rig) calls(t *testing.T, session polar.SessionID, attempt int) []api.Call {
	t.Helper()
	var page api.CallsReply
	polartest.Request(t, http.MethodGet, fmt.Sprintf("%s/rollout/session/%s/calls?attempt=%d&tokens=true", r.rollout, session, attempt), nil, &page)
	return page.Calls
}

// artifact is the content of a file that was kept.
func (r *rig) artifact(t *testing.T, session polar.SessionID, path string) []byte {
	t.Helper()
	var content []byte
	polartest.Request(t, http.MethodGet, r.rollout+"/rollout/session/"+string(session)+"/artifacts/"+(&url.URL{Path: path}).EscapedPath(), nil, &content)
	return content
}
