package trajectory_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"polar"
	"polar/llm"
	"polar/trajectory"
)

// reread is a result as it is after it was stored and read again.
func reread(t rapid.TB, tr polar.Trajectory) polar.Result {
	t.Helper()
	var r polar.Result
	if err := json.Unmarshal([]byte(marshal(t, polar.Result{Session: "s", Status: polar.Completed, Trajectory: tr})), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatIsBuiltIsVerified(t *testing.T) {
	t.Parallel()
	for _, s := range strategies {
		t.Run(s.name+s.config, func(t *testing.T) {
			t.Parallel()
			build := builder(t, s.name, s.config)
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t)
				tr, err := build(trajectory.Record{Calls: w.calls})
				if err != nil {
					t.Fatal(err)
				}
				r := reread(t, tr)
				for _, calls := range [][]polar.Call{nil, w.calls, w.standalone()} {
					if err := trajectory.Verify(r, calls); err != nil {
						t.Fatalf("with %d calls: %v", len(calls), err)
					}
				}
				if err := trajectory.Rebuild(r, build, trajectory.Record{Calls: w.calls}); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestWhatCreditMasksIsVerified(t *testing.T) {
	t.Parallel()
	for _, config := range []string{
		`{"credit":"main"}`, `{"credit":"last","drift":"split"}`, `{"credit":"split","train_roles":["subagent","auxiliary"]}`, `{"mark_tool_errors":true}`,
	} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			build := builder(t, "prefix_merging", config)
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t)
				record := trajectory.Record{Calls: w.calls}
				tr, err := build(record)
				if err != nil {
					t.Fatal(err)
				}
				one := 1.0
				if err := trajectory.Reward(&tr, trajectory.Rewards{Session: &one}); err != nil {
					t.Fatal(err)
				}
				r := reread(t, tr)
				if err := trajectory.Verify(r, w.calls); err != nil {
					t.Fatal(err)
				}
				if err := trajectory.Rebuild(r, build, record); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// ledger is a session with a chain of three calls, a fork and an abandoned answer.
func ledger() []polar.Call {
	return calls([]asked{
		{prompt: "u:", answer: "hi|", version: "1"},
		{prompt: "u:hi|t:", answer: "yo|", version: "1"},
		{prompt: "u:hi|t:yo|v:", answer: "ok|", version: "2"},
		{prompt: "u:hi|w:", answer: "no|", version: "2"},
		{prompt: "u:hi|x:", answer: "lost|", lost: true},
	})
}

func TestEveryViolationIsFound(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil     func(*polar.Result)
		calls     func([]polar.Call) []polar.Call
		alone     bool // the result itself shows it
		invariant int
		want      string
	}{
		"a token that was not sampled": {
			spoil:     func(r *polar.Result) { r.Trajectory.Traces[0].ResponseIDs[6]++ },
			invariant: trajectory.InvariantTrained, want: "s trace-000 response token 6: is 112, call c1 sampled 111",
		},
		"a logprob that was not sampled": {
			spoil:     func(r *polar.Result) { r.Trajectory.Traces[0].ResponseLogprobs[1] = -9 },
			invariant: trajectory.InvariantTrained, want: "response token 1: has the logprob -9",
		},
		"a call in two traces": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[1].Calls = []polar.CallID{"c0"} },
			alone: true, invariant: trajectory.InvariantTrained, want: "trace-001: call c0 is in trace-000 too",
		},
		"an answer that was masked away": {
			spoil: func(r *polar.Result) {
				r.Trajectory.Traces[1].LossMask = make(polar.Mask, 3)
				r.Trajectory.Traces[1].ResponseLogprobs = make(llm.Logprobs, 3)
			},
			alone: true, invariant: trajectory.InvariantTrained, want: "9 tokens are trained on, 12 were delivered",
		},
		"a call left out of the record": {
			calls:     func(c []polar.Call) []polar.Call { return c[1:] },
			invariant: trajectory.InvariantTrained, want: "call c0 is not recorded",
		},
		"a call left out of the traces": {
			calls: func(c []polar.Call) []polar.Call {
				return append(c, calls([]asked{{prompt: "z:", answer: "z|"}, {}, {}, {}, {}, {prompt: "z:", answer: "zz|"}})[5])
			},
			invariant: trajectory.InvariantTrained, want: "the 3 tokens of call c5 were delivered and are in no trace",
		},
		"an answer that was not delivered": {
			calls:     func(c []polar.Call) []polar.Call { c[3].Delivered = false; return c },
			invariant: trajectory.InvariantTrained, want: "trace-001: call c3 was never delivered",
		},
		"context that is trained on": {
			spoil: func(r *polar.Result) {
				r.Trajectory.Traces[0].LossMask[3] = true
				r.Trajectory.Traces[0].LossMask[0], r.Trajectory.Traces[0].ResponseLogprobs[0] = false, 0
			},
			invariant: trajectory.InvariantTrained, want: "s trace-000 response token 1: is 105, call c0 sampled 104",
		},
		"context with a logprob": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[0].ResponseLogprobs[3] = -0.5 },
			alone: true, invariant: trajectory.InvariantContext, want: "s trace-000 response token 3: is context and has the logprob -0.5",
		},
		"a mask that is too short": {
			spoil: func(r *polar.Result) {
				m := &r.Trajectory.Traces[0]
				m.LossMask = m.LossMask[:4]
			},
			alone: true, invariant: trajectory.InvariantTrained, want: "tokens are trained on, 12 were delivered",
		},
		"a mask that is too long": {
			spoil: func(r *polar.Result) {
				m := &r.Trajectory.Traces[0]
				m.LossMask = append(m.LossMask, false)
			},
			alone: true, invariant: trajectory.InvariantLengths, want: "trace-000 response token 13: 13 ids have a mask of 14",
		},
		"a logprob too few": {
			spoil: func(r *polar.Result) {
				m := &r.Trajectory.Traces[0]
				m.ResponseLogprobs = m.ResponseLogprobs[:12]
			},
			alone: true, invariant: trajectory.InvariantLengths, want: "13 ids have 12 logprobs",
		},
		"a missing logprob that is not named": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[0].ResponseLogprobs[0] = llm.NoLogprob() },
			alone: true, invariant: trajectory.InvariantLengths, want: "response token 0: has no logprob",
		},
		"another prompt": {
			spoil:     func(r *polar.Result) { r.Trajectory.Traces[0].PromptIDs[0]++ },
			invariant: trajectory.InvariantFaithful, want: "trace-000: its prompt is not that of call c0",
		},
		"another context": {
			spoil:     func(r *polar.Result) { r.Trajectory.Traces[0].ResponseIDs[4]++ },
			invariant: trajectory.InvariantFaithful, want: "response token 4: is 59, the engine had 58 when it sampled call c1",
		},
		"a parent that is not there": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[1].ParentID = "trace-009" },
			alone: true, invariant: trajectory.InvariantForm, want: "trace-001: its parent trace-009 is not before it",
		},
		"a version that starts elsewhere": {
			spoil:     func(r *polar.Result) { r.Trajectory.Traces[0].PolicyVersions[1].Offset-- },
			invariant: trajectory.InvariantForm, want: "response token 10: policy_versions does not say that version 2 starts here",
		},
		"a version beyond the end": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[0].PolicyVersions[1].Offset = 99 },
			alone: true, invariant: trajectory.InvariantForm, want: "policy version 2 starts at 99",
		},
		"an unknown role": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[0].Role = "boss" },
			alone: true, invariant: trajectory.InvariantForm, want: `its role is "boss"`,
		},
		"tokens that nobody counted": {
			spoil: func(r *polar.Result) { editStats(r, `"abandoned_tokens":5`, `"abandoned_tokens":4`) },
			alone: true, invariant: trajectory.InvariantCounted, want: "s: 12 tokens delivered and 4 abandoned, of 17 sampled (invariant 6)",
		},
		"splits that are not there": {
			spoil: func(r *polar.Result) { editStats(r, `"fork":1`, `"drift":1`) },
			alone: true, invariant: trajectory.InvariantCounted, want: "splits says 1 of drift, the traces have 0",
		},
		"a trace that was dropped": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces = r.Trajectory.Traces[:1] },
			alone: true, invariant: trajectory.InvariantTrained, want: "s: 1 of its 2 traces are not there",
		},
		"a trace that nobody counted": {
			spoil: func(r *polar.Result) { editStats(r, `"chains_total":2`, `"chains_total":1`) },
			alone: true, invariant: trajectory.InvariantCounted, want: "chains_total is 1, the traces have 2",
		},
		"no counts": {
			spoil: func(r *polar.Result) { delete(r.Trajectory.Metadata, "reconstruction_stats") },
			alone: true, invariant: trajectory.InvariantCounted, want: "there are no reconstruction_stats",
		},
		"training on a failure of the service": {
			spoil: func(r *polar.Result) { r.Failure = &polar.Failure{Blame: polar.BlameService} },
			alone: true, invariant: trajectory.InvariantForm, want: "trace-000 response token 0: is trained on, but the service failed",
		},
		"a filter that filters nothing": {
			spoil: func(r *polar.Result) {
				r.Trajectory.Traces[1].SetMeta("training_filter", map[string]any{"masked": true, "reason": "role"})
			},
			alone: true, invariant: trajectory.InvariantForm, want: "trace-001 response token 0: is trained on, though training_filter says masked",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorded := ledger()
			tr, err := builder(t, "prefix_merging", "")(trajectory.Record{Calls: recorded})
			if err != nil {
				t.Fatal(err)
			}
			r := reread(t, tr)
			if err := trajectory.Verify(r, recorded); err != nil {
				t.Fatalf("before: %v", err)
			}
			if tt.spoil != nil {
				tt.spoil(&r)
			}
			if tt.calls != nil {
				recorded = tt.calls(recorded)
			}
			for _, calls := range [][]polar.Call{nil, recorded} {
				if calls == nil && !tt.alone {
					continue
				}
				found, ok := errors.AsType[*trajectory.Violation](trajectory.Verify(r, calls))
				if !ok || found.Invariant != tt.invariant || !strings.Contains(found.Error(), tt.want) {
					t.Errorf("with %d calls: found %v, want %q of invariant %d", len(calls), found, tt.want, tt.invariant)
				}
			}
		})
	}
}

func editStats(r *polar.Result, old, with string) {
	m := r.Trajectory.Metadata
	m["reconstruction_stats"] = json.RawMessage(strings.ReplaceAll(string(m["reconstruction_stats"]), old, with))
}

func TestATraceKeptFromTrainingIsStillHeldAgainstItsCalls(t *testing.T) {
	t.Parallel()
	recorded := ledger()
	tr, err := builder(t, "prefix_merging", "")(trajectory.Record{Calls: recorded})
	if err != nil {
		t.Fatal(err)
	}
	r := reread(t, tr)
	for i := range r.Trajectory.Traces {
		trace := &r.Trajectory.Traces[i]
		clear(trace.LossMask)
		trace.SetMeta("training_filter", map[string]any{"masked": true, "reason": "service_failure"})
	}
	r.Failure = &polar.Failure{Blame: polar.BlameService}
	if err := trajectory.Verify(r, recorded); err != nil {
		t.Errorf("masked traces: %v", err)
	}
	if err := trajectory.Rebuild(r, builder(t, "prefix_merging", ""), trajectory.Record{Calls: recorded}); err != nil {
		t.Errorf("masked traces built again: %v", err)
	}
	r.Trajectory.Traces[0].ResponseIDs[0]++
	if err := trajectory.Verify(r, recorded); err == nil || !strings.Contains(err.Error(), "response token 0: is 105, call c0 sampled 104") {
		t.Errorf("a spoiled token: %v", err)
	}
}

func TestRebuildFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	recorded := ledger()
	build := builder(t, "prefix_merging", "")
	tr, err := build(trajectory.Record{Calls: recorded})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		spoil func(*polar.Result)
		build trajectory.Builder
		want  string
	}{
		"nothing": {},
		"a reward": {spoil: func(r *polar.Result) {
			one := 1.0
			r.Trajectory.Traces[0].Reward = &one
		}},
		"a finish reason": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[0].FinishReason = "length" },
			want:  "s trace-000: finish_reason is not as it is built again (invariant 5)",
		},
		"a segment": {
			spoil: func(r *polar.Result) { r.Trajectory.Traces[1].Segment = 4 },
			want:  "trace-001: segment is not",
		},
		"another builder": {build: builder(t, "per_request", ""), want: "2 traces are stored, 4 are built again"},
		"a builder that looks at the order": {
			build: func(r trajectory.Record) (polar.Trajectory, error) {
				return polar.Trajectory{Error: string(r.Calls[0].ID)}, nil
			},
			want: "the same calls in reverse give another trajectory",
		},
		"a builder that fails": {
			build: func(trajectory.Record) (polar.Trajectory, error) { return polar.Trajectory{}, errors.New("broken") },
			want:  "it cannot be built again: broken",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reread(t, tr)
			if tt.spoil != nil {
				tt.spoil(&r)
			}
			with := build
			if tt.build != nil {
				with = tt.build
			}
			err := trajectory.Rebuild(r, with, trajectory.Record{Calls: recorded})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAllViolationsAreListed(t *testing.T) {
	t.Parallel()
	recorded := ledger()
	tr, err := builder(t, "prefix_merging", "")(trajectory.Record{Calls: recorded})
	if err != nil {
		t.Fatal(err)
	}
	r := reread(t, tr)
	r.Trajectory.Traces[0].ResponseLogprobs[3] = -1
	r.Trajectory.Traces[1].ResponseIDs[0]++
	var got []string
	for v := range trajectory.Violations(r, recorded) {
		got = append(got, v.Error())
	}
	want := []string{
		"s trace-000 response token 3: is context and has the logprob -1 (invariant 2)",
		"s trace-001 response token 0: is 111, call c3 sampled 110 (invariant 1)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
