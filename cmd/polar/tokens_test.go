package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"polar"
	"polar/llm"
)

func TestTokensAreColouredByMaskAndLogprob(t *testing.T) {
	t.Parallel()
	trace := polar.Trace{
		ID: "trace-000", PromptIDs: llm.IDs{1, 2}, ResponseIDs: llm.IDs{11, 12, 13, 14, 15},
		LossMask:         polar.Mask{true, true, false, true, true},
		ResponseLogprobs: llm.Logprobs{-0.01, -1.5, 0, llm.NoLogprob(), -9},
	}
	var out strings.Builder
	painter{w: &out, colour: true, width: 80}.tokens(trace)
	for what, want := range map[string]string{
		"a likely token":          "\x1b[38;5;46m11\x1b[0m",
		"a less likely one":       "\x1b[38;5;28m12\x1b[0m",
		"context":                 "\x1b[2m13\x1b[0m",
		"one without a logprob":   "\x1b[31m14\x1b[0m",
		"an unlikely one":         "\x1b[38;5;130m15\x1b[0m",
		"where the answer starts": "0 trained, mean logprob -0.755",
		"where context starts":    "2 context",
		"the last answer":         "3 trained, mean logprob -9.000",
		"the prompt":              "2 prompt tokens, then 5",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q in\n%q", what, want, out.String())
		}
	}
}

func TestLinesOfTokensFitTheTerminal(t *testing.T) {
	t.Parallel()
	trace := polar.Trace{ID: "trace-000"}
	for i := range 200 {
		trace.ResponseIDs = append(trace.ResponseIDs, int32(100_000+i))
		trace.LossMask = append(trace.LossMask, true)
		trace.ResponseLogprobs = append(trace.ResponseLogprobs, -1)
	}
	var out strings.Builder
	painter{w: &out, colour: true, width: 50}.tokens(trace)
	lines, seen := 0, 0
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		lines++
		plain := strings.NewReplacer("\x1b[38;5;34m", "", "\x1b[0m", "").Replace(strings.TrimRight(line, " \n"))
		seen += len(strings.Fields(plain))
		if len(plain) > 50 {
			t.Errorf("%d columns: %q", len(plain), plain)
		}
	}
	if seen != 200 || lines < 200/7 {
		t.Errorf("%d tokens on %d lines", seen, lines)
	}
}

func TestTheForestIsATree(t *testing.T) {
	t.Parallel()
	half := 0.5
	trajectory := polar.Trajectory{Traces: []polar.Trace{
		{ID: "trace-000", Role: polar.RoleMain, SplitReason: polar.SplitRoot, Calls: []polar.CallID{"c1", "c2", "c5"}, Reward: &half, LossMask: polar.Mask{true}},
		{ID: "trace-001", Role: polar.RoleSubagent, SplitReason: polar.SplitFork, ParentID: "trace-000", Calls: []polar.CallID{"c3"}},
		{ID: "trace-002", Role: polar.RoleSubagent, SplitReason: polar.SplitDrift, ParentID: "trace-001", Segment: 1, Calls: []polar.CallID{"c4"}},
		{ID: "trace-003", Role: polar.RoleMain, SplitReason: polar.SplitRewritten, ParentID: "trace-000", Segment: 1, Calls: []polar.CallID{"c6"}},
		{ID: "trace-004", Role: polar.RoleAuxiliary, SplitReason: polar.SplitRoot, Calls: []polar.CallID{"c7"}},
	}}
	var out bytes.Buffer
	painter{w: &out, width: 80}.forest(trajectory)
	want := `7 calls → 5 traces
  trace-000  main, root, 3 calls c1…c5, 1 trained, reward 0.5
  ├─ trace-001  subagent, fork, c3, 0 trained, reward –
  │  └─ trace-002  subagent segment 1, drift, c4, 0 trained, reward –
  └─ trace-003  main segment 1, history_rewritten, c6, 0 trained, reward –
  trace-004  auxiliary, root, c7, 0 trained, reward –
`
	if out.String() != want {
		t.Errorf("drawn\n%s", out.String())
	}
}

func TestVerifyReadsCompressedFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.jsonl.zst")
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(`{"session_id":"a.0","trajectory":{"traces":[]}}` + "\n" + `{"session_id":"a.1","trajectory":{"traces":[{"trace_id":"x","loss_mask":[1]}]}}`)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	v := &verifier{}
	if err := v.file(path); err != nil {
		t.Fatal(err)
	}
	if v.Sessions != 2 || len(v.Violations) != 1 || v.Violations[0].Session != "a.1" {
		t.Errorf("found %+v", v.verified)
	}
}
