package trajectory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/llm"
)

func TestPolicyVersionsSayWhereEachStarts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		calls []asked
		want  string
	}{
		"one for all": {
			[]asked{{prompt: "u:", answer: "hi|", version: "1"}, {prompt: "u:hi|t:", answer: "yo|", version: "1"}},
			`[["1",0]]`,
		},
		"several, and back": {
			[]asked{
				{prompt: "u:", answer: "hi|", version: "1"},
				{prompt: "u:hi|t:", answer: "yo|", version: "2"},
				{prompt: "u:hi|t:yo|v:", answer: "ok|", version: "3"},
				{prompt: "u:hi|t:yo|v:ok|w:", answer: "no|", version: "1"},
			},
			`[["1",0],["2",5],["3",10],["1",15]]`,
		},
		"unknown at first and in between": {
			[]asked{
				{prompt: "u:", answer: "hi|"},
				{prompt: "u:hi|t:", answer: "yo|", version: "2"},
				{prompt: "u:hi|t:yo|v:", answer: "ok|"},
				{prompt: "u:hi|t:yo|v:ok|w:", answer: "no|", version: "2"},
			},
			`[["2",5],["",10],["2",15]]`,
		},
		"an empty answer starts none": {
			[]asked{
				{prompt: "u:", answer: "hi|", version: "1"},
				{prompt: "u:hi|t:", answer: "", version: "2"},
				{prompt: "u:hi|t:v:", answer: "ok|", version: "1"},
			},
			`[["1",0]]`,
		},
		"an answer that never arrived starts none": {
			[]asked{
				{prompt: "u:", answer: "hi|", version: "1"},
				{prompt: "u:hi|t:", answer: "yo|", version: "2", lost: true},
				{prompt: "u:hi|t:", answer: "ya|", version: "3"},
			},
			`[["1",0],["3",5]]`,
		},
		"drift moves no start": {
			[]asked{{prompt: "u:", answer: "abXcd|", version: "1"}, {prompt: "u:abYYYcd|t:", answer: "yo|", version: "2"}},
			`[["1",0],["2",8]]`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := build(t, "prefix_merging", "", of(calls(test.calls)))
			if len(tr.Traces) != 1 {
				t.Fatalf("%d traces", len(tr.Traces))
			}
			if diff := cmp.Diff(test.want, marshal(t, tr.Traces[0].PolicyVersions)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRetriesAreOneTurn(t *testing.T) {
	t.Parallel()
	list := calls([]asked{
		// cut off, then asked again, then given once more to a repetition
		{prompt: "u:", answer: "h", finish: llm.FinishAbort, lost: true},
		{prompt: "u:", answer: "hi|", edit: func(c *polar.Call) { c.Retries = 3 }},
		{prompt: "u:hi|t:", answer: "yo", finish: llm.FinishAbort, lost: true},
		{prompt: "u:hi|t:", answer: "ya|"},
	})
	for _, strategy := range []string{"prefix_merging", "per_request"} {
		tr := build(t, strategy, "", of(list))
		trained := 0
		for _, trace := range tr.Traces {
			trained += trace.Trainable()
		}
		got, err := readStats(tr)
		if err != nil {
			t.Fatal(err)
		}
		if trained != 6 || got.Total != 4 || got.Merged != 2 || got.Delivered != 6 || got.Abandoned != 3 || got.Sampled != 9 {
			t.Errorf("%s: %d trained, %+v", strategy, trained, got)
		}
	}
	if tr := build(t, "prefix_merging", "", of(list)); show(tr.Traces[0]) != "trace-000 root/0: u:>hi|[t:]ya|" || len(tr.Traces) != 1 {
		t.Errorf("%d traces, the first %s", len(tr.Traces), show(tr.Traces[0]))
	}
}

func TestAnswersWithoutAnEndOfTurn(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		calls []asked
		want  []string
	}{
		"none ever ends one": {
			[]asked{{prompt: "u:", answer: "ab"}, {prompt: "u:abt:", answer: "cd"}, {prompt: "u:abt:cdv:", answer: "ef"}},
			[]string{"trace-000 root/0: u:>ab[t:]cd[v:]ef"},
		},
		"none ever ends one, and it came back otherwise": {
			[]asked{{prompt: "u:", answer: "ab"}, {prompt: "u:aBt:", answer: "cd"}},
			[]string{"trace-000 root/0: u:>ab", "trace-001 drift/1 of trace-000: u:aBt:>cd"},
		},
		"two stand at the end": {
			[]asked{{prompt: "u:", answer: "ab||"}, {prompt: "u:ab||t:", answer: "cd|"}},
			[]string{"trace-000 root/0: u:>ab||[t:]cd|"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := []string{}
			for _, trace := range build(t, "prefix_merging", "", of(calls(test.calls))).Traces {
				got = append(got, show(trace))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTwoThousandCallsOfAllRoles has an agent that asks a sub-agent at every
// tenth turn, with the messages of a long history in every call.
func TestTwoThousandCallsOfAllRoles(t *testing.T) {
	t.Parallel()
	main := conversation(1800, 20, 30, false, true)
	tools := []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"ls"}}`)}
	messages := []json.RawMessage{json.RawMessage(`{"role":"system","content":"You are an agent"}`), json.RawMessage(user(task))}
	var list []polar.Call
	for i, c := range main {
		c.Tools, c.Messages, c.Reply = tools, messages, json.RawMessage(assistant(fmt.Sprint("answer ", i)))
		messages = append(slices.Clip(messages), c.Reply, json.RawMessage(user(fmt.Sprint("result ", i))))
		list = append(list, c)
		if i%9 == 0 {
			child := recorded([]request{{openChild, "ls", []said{{"user", fmt.Sprint("part ", i)}}, "Done."}})[0]
			child.ID, child.Start = polar.CallID(fmt.Sprint("child", i)), c.Start.Add(time.Millisecond)
			list = append(list, child)
		}
	}
	if len(list) != 2000 {
		t.Fatalf("%d calls", len(list))
	}
	for _, config := range []string{`{}`, `{"drift":"split"}`} {
		roles := map[polar.Role]int{}
		for _, trace := range build(t, "prefix_merging", config, of(list)).Traces {
			roles[trace.Role] += len(trace.Calls)
			if trace.Role == polar.RoleMain && len(trace.Calls) != 1800 {
				t.Errorf("%s: a main trace of %d calls", config, len(trace.Calls))
			}
		}
		if diff := cmp.Diff(map[polar.Role]int{polar.RoleMain: 1800, polar.RoleSubagent: 200}, roles); diff != "" {
			t.Errorf("%s: %s", config, diff)
		}
	}
}
