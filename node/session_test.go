package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/llm"
	"polar/node"
)

func TestASessionGoesFromClaimToResult(t *testing.T) {
	t.Parallel()
	task := shell(`env | sort >"$ARTIFACTS_DIR/env"; echo said: {instruction}; test "$(cat in/data)" = content`)
	task.Runtime = &polar.Runtime{
		Backend: "local", Env: map[string]string{"FROM_RUNTIME": "1", "BOTH": "runtime", "TASK_ID": "over the standard"},
		Prepare: []polar.Prepare{
			{Type: "write_file", Target: "in/data", Content: "content"},
			{Type: "exec", Command: `echo preparing; test "$BOTH" = runtime`},
		},
	}
	task.Agent.Env = map[string]string{"BOTH": "agent"}
	task.Metadata = map[string]json.RawMessage{
		"group_id": json.RawMessage(`"g1"`), "policy_version": json.RawMessage(`7`),
		"eval_sampling_seed_base": json.RawMessage(`100`), "own": json.RawMessage(`{"a":1}`),
	}
	task.Evaluator = evaluator("command", `{"command":"test $JUDGE = yes && test -e in/data"}`)
	task.Evaluator.Env = map[string]string{"JUDGE": "yes"}
	task.Budget = polar.Budget{MaxCalls: 9}
	rec := &recorder{calls: []polar.Call{goodCall("c1", 1), goodCall("c2", 2)}}
	r, g := one(t, task, rec, nil)

	if r.Status != polar.Completed || r.Failure != nil || r.Node != "n1" || r.Attempt != 1 || r.Session != "t-0" {
		t.Fatalf("result %+v\n%s", r, g.log)
	}
	if diff := cmp.Diff(polar.ResultUsage{Calls: 2, PromptTokens: 4, CompletionTokens: 4, CachedTokens: 2}, r.Usage); diff != "" {
		t.Error(diff)
	}
	for i, trace := range r.Trajectory.Traces {
		if trace.Reward == nil || *trace.Reward != 1 || trace.Trainable() != 2 {
			t.Errorf("trace %d: %+v", i, trace)
		}
	}
	opened := rec.opened[0]
	if opened.Session != "t-0" || opened.Attempt != 1 || opened.Version != "7" || *opened.Sampling.Seed != 100 || opened.Budget.MaxCalls != 9 {
		t.Errorf("recording %+v", opened)
	}
	if !strings.HasPrefix(opened.Key, "sk-polar-") || len(opened.Key) < 30 || len(rec.closed) != 1 || rec.closed[0] != opened.Key {
		t.Errorf("key %q, closed %q", opened.Key, rec.closed)
	}
	env := g.blobs.of(r, "artifacts/env")
	for _, want := range []string{
		"OPENAI_BASE_URL=http://gateway/v1\n", "OPENAI_API_KEY=" + opened.Key + "\n", "SESSION_ID=t-0\n", "POLAR_INSTRUCTION=do it\n",
		"FROM_RUNTIME=1\n", "BOTH=agent\n", "TASK_ID=over the standard\n", "POLAR_MODEL=served\n",
	} {
		if !strings.Contains(env, want) {
			t.Errorf("no %q in\n%s", want, env)
		}
	}
	if got := g.blobs.of(r, "logs/agent/shell.log"); got != "said: do it\n" {
		t.Errorf("agent log %q", got)
	}
	if got := g.blobs.of(r, "logs/prepare.log"); got != "preparing\n" {
		t.Errorf("prepare log %q", got)
	}
	if got := g.blobs.of(r, "logs/evaluator.log"); got != "" {
		t.Errorf("evaluator log %q", got)
	}
	meta := func(key string) string { return string(r.Trajectory.Metadata[key]) }
	for key, want := range map[string]string{
		"session_id": `"t-0"`, "task_id": `"t"`, "builder": `"per_request"`, "group_id": `"g1"`, "policy_version": `7`,
		"record_count": `2`, "trace_count": `2`, "agent_result": `{"status":"COMPLETED","return_code":0}`,
		"evaluation": `{"reward":1,"detail":{"exit_code":0}}`,
	} {
		if meta(key) != want {
			t.Errorf("metadata %s is %s, want %s", key, meta(key), want)
		}
	}
	if string(r.Metadata["own"]) != `{"a":1}` {
		t.Errorf("result metadata %s", r.Metadata["own"])
	}
	if r.Timing.E2E <= 0 || r.Timing.AgentExec <= 0 || r.Timing.Eval <= 0 || r.Timing.Prepare <= 0 || r.Timing.Run < r.Timing.AgentExec {
		t.Errorf("timing %+v", r.Timing)
	}
	want := []polar.Status{polar.Initializing, polar.Ready, polar.Running, polar.PostRun, polar.Building, polar.Evaluating}
	seen := g.server.states["t-0"]
	next := 0
	for _, st := range seen { // states may pass too fast to be told, never in another order
		for next < len(want) && want[next] != st {
			next++
		}
	}
	if next == len(want) || len(seen) == 0 {
		t.Errorf("states %v", seen)
	}
}

func TestFailuresHaveTheirStageBlameAndKind(t *testing.T) {
	t.Parallel()
	calls := []polar.Call{goodCall("c1", 1)}
	with := func(extra ...polar.Call) []polar.Call { return append([]polar.Call{goodCall("c1", 1)}, extra...) }
	prepare := func(a polar.Prepare) func(*polar.Task) {
		return func(t *polar.Task) { t.Runtime = &polar.Runtime{Backend: "local", Prepare: []polar.Prepare{a}} }
	}
	agentTimeout := func(t *polar.Task) {
		t.Metadata = map[string]json.RawMessage{"agent_timeout": json.RawMessage(`0.2`)}
		t.Evaluator = evaluator("command", `{"command":"true","pass_reward":0.75}`)
	}
	judge := func(strategy, config string) func(*polar.Task) {
		return func(t *polar.Task) { t.Evaluator = evaluator(strategy, config) }
	}
	for name, c := range map[string]struct {
		line      string
		change    func(*polar.Task)
		rec       *recorder
		status    polar.Status
		failure   polar.Failure // the message only has to be in it
		trainable bool          // the traces, if any
		reward    float64       // -1 for none
	}{
		"exit code": {
			"touch made; echo broken pipe >&2; exit 3", judge("session_completed", ""), &recorder{calls: calls},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "exit_code", Message: "exit code 3: broken pipe"},
			true, 0,
		},
		"no calls": {
			"true", judge("session_completed", ""), &recorder{},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "no_calls", Message: "without a model call"},
			true, -1,
		},
		"agent timeout": {
			"touch made; sleep 1000", agentTimeout, &recorder{calls: calls},
			polar.TimedOut,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "agent_timeout", Message: "agent_timeout"},
			true, 0.75,
		},
		"engine errors whatever the exit code": {
			"exit 0", judge("session_completed", ""), &recorder{calls: with(badCall("c2", 2, llm.EngineFailed))},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "service", Kind: "engine", Message: "it broke"},
			false, -1,
		},
		"engine errors before a failing exit": {
			"exit 1", nil, &recorder{calls: with(badCall("c2", 2, llm.EngineTimeout))},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "service", Kind: "engine", Message: "it broke"},
			false, -1,
		},
		"calls that could not be stored": {
			"exit 1", nil, &recorder{calls: with(badCall("c2", 2, llm.StorageFailed))},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "service", Kind: "storage", Message: "it broke"},
			false, -1,
		},
		"a call the agent spoilt itself": {
			"exit 1", nil, &recorder{calls: with(badCall("c2", 2, llm.EngineFailed), badCall("c3", 3, llm.ContextOverflow))},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "exit_code", Message: "exit code 1"},
			true, -1,
		},
		"a recorder that does not open": {
			"true", nil, &recorder{openErr: errors.New("full")},
			polar.Errored,
			polar.Failure{Stage: "init", Blame: "service", Kind: "storage", Message: "open recorder: full"},
			true, -1,
		},
		"a recorder that loses its calls": {
			"true", nil, &recorder{closeErr: errors.New("disk"), calls: calls},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "service", Kind: "storage", Message: "close recorder: disk"},
			false, -1,
		},
		"a command that does not prepare": {
			"true", prepare(polar.Prepare{Type: "exec", Command: "echo no space; exit 4"}), &recorder{},
			polar.Errored,
			polar.Failure{Stage: "init", Blame: "task", Kind: "prepare", Message: "runtime.prepare[0]: exit code 4: no space"},
			true, -1,
		},
		"an upload from elsewhere": {
			"true", prepare(polar.Prepare{Type: "upload_file", Source: "/etc/passwd", Target: "x"}), &recorder{},
			polar.Errored,
			polar.Failure{Stage: "init", Blame: "task", Kind: "prepare", Message: "allowed_host_paths"},
			true, -1,
		},
		"a runtime this node cannot give": {
			"true", func(t *polar.Task) { t.Runtime = &polar.Runtime{Backend: "local", GPUs: 8} }, &recorder{},
			polar.Errored,
			polar.Failure{Stage: "init", Blame: "task", Kind: "plugin", Message: "runtime.gpus"},
			true, -1,
		},
		"a backend this node does not have": {
			"true", func(t *polar.Task) { t.Runtime = &polar.Runtime{Backend: "docker"} }, &recorder{},
			polar.Errored,
			polar.Failure{Stage: "init", Blame: "task", Kind: "plugin", Message: "known: local"},
			true, -1,
		},
		"a builder that breaks": {
			"true", func(t *polar.Task) { t.Builder.Strategy = "broken" }, &recorder{calls: calls},
			polar.Errored,
			polar.Failure{Stage: "build", Blame: "service", Kind: "internal", Message: "no way"},
			true, -1,
		},
		"an evaluator that breaks": {
			"true", judge("broken", ""), &recorder{calls: calls},
			polar.Errored,
			polar.Failure{Stage: "evaluate", Blame: "service", Kind: "evaluator", Message: "judge is away"},
			false, -1,
		},
		"an evaluator that breaks after the agent did": {
			"exit 1", judge("broken", ""), &recorder{calls: calls},
			polar.Errored,
			polar.Failure{Stage: "evaluate", Blame: "service", Kind: "evaluator", Message: "judge is away"},
			false, -1,
		},
		"an evaluator that panics": {
			"true", judge("panics", ""), &recorder{calls: calls},
			polar.Errored,
			polar.Failure{Stage: "evaluate", Blame: "service", Kind: "internal", Message: "boom"},
			false, -1,
		},
		"engine errors and a call cut off with the session": {
			"exit 1", nil, &recorder{calls: with(badCall("c2", 2, llm.EngineFailed), badCall("c3", 3, llm.SessionEnded))},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "service", Kind: "engine", Message: "it broke"},
			false, -1,
		},
		"engine errors that the harness got over": {
			"exit 1", nil, &recorder{calls: with(badCall("c0", 0, llm.EngineFailed))},
			polar.Errored,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "exit_code", Message: "exit code 1"},
			true, -1,
		},
		"an evaluator whose component is no number": {
			"true", judge("not_a_number", ""), &recorder{calls: calls},
			polar.Errored,
			polar.Failure{Stage: "evaluate", Blame: "service", Kind: "evaluator", Message: "NaN"},
			false, -1,
		},
		"an evaluator that miscounts": {
			"true", judge("per_trace", `{"rewards":[1,2]}`), &recorder{calls: calls},
			polar.Errored,
			polar.Failure{Stage: "evaluate", Blame: "service", Kind: "evaluator", Message: "2 rewards for 1 traces"},
			false, -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := shell(c.line)
			if c.change != nil {
				c.change(&task)
			}
			r, g := one(t, task, c.rec, nil)
			if r.Status != c.status || r.Trajectory.Status != c.status {
				t.Errorf("status %s, of the trajectory %s, want %s", r.Status, r.Trajectory.Status, c.status)
			}
			if r.Failure == nil {
				t.Fatal("no failure")
			}
			got, want := *r.Failure, c.failure
			if !strings.Contains(got.Message, want.Message) || r.Error != got.Message {
				t.Errorf("message %q, want %q in it", got.Message, want.Message)
			}
			got.Message, want.Message = "", ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("failure (-want +got):\n%s\n%s", diff, g.log)
			}
			for _, trace := range r.Trajectory.Traces {
				if (trace.Trainable() > 0) != c.trainable {
					t.Errorf("%d trainable tokens", trace.Trainable())
				}
				if filter := string(trace.Metadata["training_filter"]); strings.Contains(filter, `"trainable":false`) == c.trainable {
					t.Errorf("training filter %s", filter)
				}
				switch {
				case c.reward == -1 && trace.Reward != nil:
					t.Errorf("reward %v, want none", *trace.Reward)
				case c.reward != -1 && (trace.Reward == nil || *trace.Reward != c.reward):
					t.Errorf("reward %v, want %v", trace.Reward, c.reward)
				}
			}
			if len(c.rec.opened) != len(c.rec.closed) {
				t.Errorf("%d recordings opened, %d closed", len(c.rec.opened), len(c.rec.closed))
			}
		})
	}
}

func TestRewardsOfTracesWinOverThatOfTheSession(t *testing.T) {
	t.Parallel()
	task := shell("true")
	task.Evaluator = evaluator("per_trace", `{"rewards":[1,0.25]}`)
	r, _ := one(t, task, &recorder{calls: []polar.Call{goodCall("a", 1), goodCall("b", 2)}}, nil)
	if tr := r.Trajectory.Traces; *tr[0].Reward != 1 || *tr[1].Reward != 0.25 || tr[1].RewardComponents["c"] != 1 {
		t.Errorf("traces %+v", tr)
	}
}

func TestTheInstructionTellsTheMainConversationAndCreditGoesByIt(t *testing.T) {
	t.Parallel()
	asked := func(c polar.Call, prompt llm.IDs, system, text string) polar.Call {
		c.Prompt = polar.NewPrompt(nil, 0, prompt)
		c.Messages = []json.RawMessage{
			json.RawMessage(fmt.Sprintf(`{"role":"system","content":%q}`, system)), json.RawMessage(fmt.Sprintf(`{"role":"user","content":%q}`, text)),
		}
		return c
	}
	task := shell("true")
	task.Instruction = "say hello"
	task.Builder = polar.Strategy{Strategy: "prefix_merging", Config: json.RawMessage(`{"credit":"main"}`)}
	task.Evaluator = evaluator("session_completed", `{}`)
	r, _ := one(t, task, &recorder{calls: []polar.Call{
		asked(goodCall("a", 1), llm.IDs{1, 2}, "a helper", "look around"), asked(goodCall("b", 2), llm.IDs{3, 4}, "an agent", "Please say hello."),
	}}, nil)
	traces := r.Trajectory.Traces
	if len(traces) != 2 || traces[0].Role != polar.RoleSubagent || traces[1].Role != polar.RoleMain {
		t.Fatalf("traces %+v", traces)
	}
	if traces[0].Reward != nil || traces[0].Trainable() != 0 || traces[1].Reward == nil || *traces[1].Reward != 1 || traces[1].Trainable() != 2 {
		t.Errorf("traces %+v", traces)
	}
}

func TestAFreshSandboxHasTheArtifactsAndNothingElse(t *testing.T) {
	t.Parallel()
	task := shell("touch work-of-agent; echo patch >$ARTIFACTS_DIR/patch")
	task.Runtime = &polar.Runtime{Backend: "local", EvalPrepare: []polar.Prepare{{Type: "write_file", Target: "tests", Content: "x", Mode: "0600"}}}
	task.Evaluator = evaluator("command", `{"command":"test ! -e work-of-agent && test $(cat $ARTIFACTS_DIR/patch) = patch && test -e tests && echo judged"}`)
	task.Evaluator.RefreshRuntime = true
	r, g := one(t, task, &recorder{calls: []polar.Call{goodCall("a", 1)}}, nil)
	if reward := r.Trajectory.Reward(); reward == nil || *reward != 1 {
		t.Errorf("reward %v\n%s\n%s", reward, r.Trajectory.Metadata["evaluation"], g.log)
	}
	if got := g.blobs.of(r, "evaluation/logs/evaluator.log"); got != "judged\n" {
		t.Errorf("evaluator log %q", got)
	}
}

func TestUploadsComeFromAllowedFoldersOnly(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	if err := os.MkdirAll(filepath.Join(host, "repo", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"repo/a": "A", "repo/sub/b": "B", "single": "S"} {
		if err := os.WriteFile(filepath.Join(host, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(host, "way-out")); err != nil {
		t.Fatal(err)
	}
	task := shell(`cat r/a r/sub/b one/s`)
	task.Runtime = &polar.Runtime{Backend: "local", Prepare: []polar.Prepare{
		{Type: "upload_dir", Source: filepath.Join(host, "repo"), Target: "r"},
		{Type: "upload_file", Source: filepath.Join(host, "single"), Target: "one/s"},
	}}
	allow := func(c *node.Config) {
		c.Plugins = plugins(t)
		c.Plugins.AllowedHostPaths = []string{host}
	}
	r, g := one(t, task, &recorder{calls: []polar.Call{goodCall("a", 1)}}, allow)
	if got := g.blobs.of(r, "logs/agent/shell.log"); got != "ABS" {
		t.Errorf("the harness saw %q, failure %v", got, r.Failure)
	}
	task.Runtime.Prepare[0].Source = filepath.Join(host, "way-out")
	r, _ = one(t, task, &recorder{}, allow)
	if r.Failure == nil || r.Failure.Blame != polar.BlameTask {
		t.Errorf("a link out of the allowed folder was followed: %v", r.Failure)
	}
}

func TestPreparingIsTriedAgain(t *testing.T) {
	t.Parallel()
	task := shell("true")
	task.Runtime = &polar.Runtime{Backend: "local", Prepare: []polar.Prepare{
		{Type: "exec", Command: "echo x >>tries; test $(wc -l <tries) -ge 3", MaxAttempts: 3, RetryBackoff: 0.01},
	}}
	if r, _ := one(t, task, &recorder{calls: []polar.Call{goodCall("a", 1)}}, nil); r.Status != polar.Completed {
		t.Errorf("failure %v", r.Failure)
	}
}

func TestArtifactsAreBounded(t *testing.T) {
	t.Parallel()
	task := shell("cd $ARTIFACTS_DIR; head -c 5000 /dev/zero >big; for i in $(seq -w 50); do echo $i >f$i; done")
	r, _ := one(t, task, &recorder{calls: []polar.Call{goodCall("a", 1)}}, func(c *node.Config) {
		c.MaxArtifacts, c.MaxArtifactBytes = 10, 4000
	})
	if len(r.Artifacts) != 10 {
		t.Errorf("%d artifacts", len(r.Artifacts))
	}
	var out struct {
		Count int
		Paths []string
	}
	if err := json.Unmarshal(r.Metadata["artifacts_left_out"], &out); err != nil || out.Count != 42 || out.Paths[0] != "artifacts/big" {
		t.Errorf("left out %+v, error %v", out, err)
	}
}

func TestWhatAHarnessLeavesRunningIsDeadWithItsSession(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	task := shell("setsid -f bash -c 'cd /; echo $$ >" + pids + "; exec sleep 1000' </dev/null >/dev/null 2>&1; for i in $(seq 400); do test -s " + pids + " && exit 0; sleep 0.02; done")
	one(t, task, &recorder{calls: []polar.Call{goodCall("a", 1)}}, nil)
	raw, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(raw)) + "/stat")
	if err == nil && !bytes.Contains(stat, []byte(") Z ")) {
		t.Errorf("it still runs: %s", stat)
	}
}
