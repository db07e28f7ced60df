package trajectory_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/llm"
	"polar/trajectory"
)

// asked is a call as the tables write it: its ids are letters, '|' ends a turn.
type asked struct {
	prompt, answer string
	finish         string
	model          string
	version        string
	messages       []string
	reply          string
	lost           bool
	edit           func(*polar.Call)
}

func tokens(s string) llm.IDs {
	ids := make(llm.IDs, 0, len(s))
	for _, r := range s {
		ids = append(ids, r)
	}
	return ids
}

func letters(ids llm.IDs) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteRune(id)
	}
	return b.String()
}

func calls(list []asked) []polar.Call {
	out := make([]polar.Call, len(list))
	for i, a := range list {
		c := polar.Call{
			ID: polar.CallID(fmt.Sprint("c", i)), Start: time.Unix(int64(i), 0), Delivered: !a.lost,
			Prompt: polar.NewPrompt(nil, 0, tokens(a.prompt)), Finish: a.finish,
			Engine: llm.Engine{Kind: "vllm", Model: a.model}, Version: a.version,
		}
		if c.Finish == "" {
			c.Finish = llm.FinishStop
		}
		for k, id := range tokens(a.answer) {
			c.Sampled = append(c.Sampled, llm.Token{ID: id, Logprob: -float32(k+1) / 4})
		}
		for _, m := range a.messages {
			c.Messages = append(c.Messages, json.RawMessage(m))
		}
		if a.reply != "" {
			c.Reply = json.RawMessage(a.reply)
		}
		if a.edit != nil {
			a.edit(&c)
		}
		out[i] = c
	}
	return out
}

// of is the record of a session whose instruction nobody knows.
func of(calls []polar.Call) trajectory.Record { return trajectory.Record{Calls: calls} }

func user(text string) string      { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }
func assistant(text string) string { return fmt.Sprintf(`{"role":"assistant","content":%q}`, text) }

func useTool(name, arguments string) string {
	return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":%q,"arguments":%q}}]}`, name, arguments)
}

// show writes a trace on one line: masked tokens in brackets.
func show(tr polar.Trace) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%d", tr.ID, tr.SplitReason, tr.Segment)
	if tr.ParentID != "" {
		fmt.Fprintf(&b, " of %s", tr.ParentID)
	}
	fmt.Fprintf(&b, ": %s>", letters(tr.PromptIDs))
	for i, id := range tr.ResponseIDs {
		switch masked := !tr.LossMask[i]; {
		case masked && (i == 0 || tr.LossMask[i-1]):
			b.WriteByte('[')
		case !masked && i > 0 && !tr.LossMask[i-1]:
			b.WriteByte(']')
		}
		b.WriteRune(id)
	}
	if tr.Drift.Turns > 0 {
		fmt.Fprintf(&b, " drift %d turns %d tokens", tr.Drift.Turns, tr.Drift.Tokens)
	}
	return b.String()
}

func TestPrefixMerging(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config string
		calls  []asked
		want   []string
	}{
		"a conversation that grows is one trace": {
			calls: []asked{{prompt: "s|u:", answer: "hi|"}, {prompt: "s|u:hi|t:", answer: "yo|"}, {prompt: "s|u:hi|t:yo|v:", answer: "ok|"}},
			want:  []string{"trace-000 root/0: s|u:>hi|[t:]yo|[v:]ok|"},
		},
		"an engine that trims the stop token": {
			calls: []asked{{prompt: "u:", answer: "hi"}, {prompt: "u:hi|t:", answer: "yo"}},
			want:  []string{"trace-000 root/0: u:>hi[|t:]yo"},
		},
		"a re-rendered answer stays as sampled and its copy goes": {
			calls: []asked{{prompt: "u:", answer: "abXcd|"}, {prompt: "u:abYZcd|t:", answer: "yo|"}},
			want:  []string{"trace-000 root/0: u:>abXcd|[t:]yo| drift 1 turns 2 tokens"},
		},
		"a re-rendered answer of an engine that trims the stop token, with the token configured": {
			config: `{"end_of_turn_token_id":124}`,
			calls:  []asked{{prompt: "u:", answer: "abc"}, {prompt: "u:aBc|t:", answer: "yo"}},
			want:   []string{"trace-000 root/0: u:>abc[|t:]yo drift 1 turns 1 tokens"},
		},
		"the last word of a trimmed answer that also stands inside one does not end turns": {
			calls: []asked{{prompt: "u:", answer: "a.b."}, {prompt: "u:A.b.|t:", answer: "yo"}},
			want:  []string{"trace-000 root/0: u:>a.b.", "trace-001 drift/1 of trace-000: u:A.b.|t:>yo"},
		},
		"a re-rendered answer with drift split": {
			config: `{"drift":"split"}`,
			calls:  []asked{{prompt: "u:", answer: "abXcd|"}, {prompt: "u:abYcd|t:", answer: "yo|"}, {prompt: "u:abYcd|t:yo|v:", answer: "ok|"}},
			want:   []string{"trace-000 root/0: u:>abXcd|", "trace-001 drift/1 of trace-000: u:abYcd|t:>yo|[v:]ok|"},
		},
		"end-of-turn inside a tool result": {
			calls: []asked{{prompt: "u:", answer: "aX|"}, {prompt: "u:aY|t(|)|g:", answer: "yo|"}},
			want:  []string{"trace-000 root/0: u:>aX|[t(|)|g:]yo| drift 1 turns 1 tokens"},
		},
		"several end-of-turn tokens: the copy ends with another than the answer": {
			calls: []asked{{prompt: "q:", answer: "z|"}, {prompt: "u:", answer: "aX#"}, {prompt: "u:aY|t:", answer: "yo|"}},
			want:  []string{"trace-000 root/0: q:>z|", "trace-001 root/0: u:>aX#[|t:]yo| drift 1 turns 2 tokens"},
		},
		"an answer that was cut off and came back re-rendered": {
			calls: []asked{{prompt: "u:", answer: "abX", finish: llm.FinishLength}, {prompt: "u:abY|t:", answer: "yo|"}},
			want:  []string{"trace-000 root/0: u:>abX", "trace-001 truncated/1 of trace-000: u:abY|t:>yo|"},
		},
		"an answer that was cut off and came back as it was": {
			calls: []asked{{prompt: "u:", answer: "abX", finish: llm.FinishLength}, {prompt: "u:abX|t:", answer: "yo|"}},
			want:  []string{"trace-000 root/0: u:>abX[|t:]yo|"},
		},
		"a second call that continues the same answer": {
			calls: []asked{{prompt: "u:", answer: "hi|"}, {prompt: "u:hi|t:", answer: "yo|"}, {prompt: "u:hi|v:", answer: "ok|"}, {prompt: "u:hi|v:ok|w:", answer: "no|"}},
			want:  []string{"trace-000 root/0: u:>hi|[t:]yo|", "trace-001 fork/0 of trace-000: u:hi|v:>ok|[w:]no|"},
		},
		"a retry whose answer ends in the middle of what was there before is found again": {
			calls: []asked{
				{prompt: "a:", answer: "x|"},
				{prompt: "a:x|b:", answer: "y|"},
				{prompt: "a:z|q:", answer: "r|"},
				{prompt: "a:z|q:r|s:", answer: "t|"},
				{prompt: "a:", answer: "z|"},
				{prompt: "a:z|q:K|", answer: "m|"},
			},
			want: []string{
				"trace-000 root/0: a:>x|[b:]y|",
				"trace-001 fork/0 of trace-000: a:z|q:>r|[s:]t|",
				"trace-002 fork/0 of trace-000: a:>z|[q:K|]m|",
			},
		},
		"an engine with another model": {
			calls: []asked{{prompt: "u:", answer: "hi|", model: "a"}, {prompt: "u:hi|t:", answer: "yo|", model: "b"}},
			want:  []string{"trace-000 root/0: u:>hi|", "trace-001 engine_changed/1 of trace-000: u:hi|t:>yo|"},
		},
		"retries: each answer is trained once, and the one that came back is continued": {
			calls: []asked{{prompt: "u:", answer: "hi|"}, {prompt: "u:", answer: "ho|"}, {prompt: "u:hi|t:", answer: "yo|"}},
			want:  []string{"trace-000 root/0: u:>hi|[t:]yo|", "trace-001 fork/0 of trace-000: u:>ho|"},
		},
		"the answer in the history is another": {
			calls: []asked{
				{prompt: "u:", answer: "hi|", messages: []string{user("u")}, reply: assistant("hi")},
				{prompt: "u:no|t:", answer: "yo|", messages: []string{user("u"), assistant("no"), user("t")}},
			},
			want: []string{"trace-000 root/0: u:>hi|", "trace-001 history_rewritten/1 of trace-000: u:no|t:>yo|"},
		},
		"an edit deep in the history is a rewrite and not a fork": {
			calls: []asked{
				{prompt: "u:", answer: "hi|", messages: []string{user("u")}, reply: assistant("hi")},
				{prompt: "u:hi|t:", answer: "yo|", messages: []string{user("u"), assistant("hi"), user("t")}, reply: assistant("yo")},
				{prompt: "u:hi|t:yo|v:", answer: "ok|", messages: []string{user("u"), assistant("hi"), user("t"), assistant("yo"), user("v")}, reply: assistant("ok")},
				{prompt: "u:hi|t:NO|v:", answer: "a|", messages: []string{user("u"), assistant("hi"), user("t"), assistant("NO"), user("v")}, reply: assistant("a")},
			},
			want: []string{"trace-000 root/0: u:>hi|[t:]yo|[v:]ok|", "trace-001 history_rewritten/1 of trace-000: u:hi|t:NO|v:>a|"},
		},
		"the text came back trimmed and without its thinking": {
			calls: []asked{
				{prompt: "u:", answer: "(h)hi|", messages: []string{user("u")}, reply: `{"role":"assistant","content":"hi\n","reasoning_content":"h"}`},
				{prompt: "u:hi|t:", answer: "yo|", messages: []string{user("u"), assistant(" hi"), user("t")}},
			},
			want: []string{"trace-000 root/0: u:>(h)hi|[t:]yo| drift 1 turns 3 tokens"},
		},
		"the thinking was in the text": {
			calls: []asked{
				{prompt: "u:", answer: "(h)hi|", messages: []string{user("u")}, reply: assistant("<think>h</think>\nhi")},
				{prompt: "u:hi|t:", answer: "yo|", messages: []string{user("u"), assistant("hi"), user("t")}},
			},
			want: []string{"trace-000 root/0: u:>(h)hi|[t:]yo| drift 1 turns 3 tokens"},
		},
		"tool arguments came back in another spelling": {
			calls: []asked{
				{prompt: "u:", answer: "{b,a}|", finish: llm.FinishToolCalls, messages: []string{user("u")}, reply: useTool("ls", `{"b":1,"a":"<"}`)},
				{prompt: "u:{a,b}|t:", answer: "yo|", messages: []string{user("u"), useTool("ls", `{"a": "<", "b": 1}`), user("t")}},
			},
			want: []string{"trace-000 root/0: u:>{b,a}|[t:]yo| drift 1 turns 3 tokens"},
		},
		"another tool was called": {
			calls: []asked{
				{prompt: "u:", answer: "{b}|", finish: llm.FinishToolCalls, messages: []string{user("u")}, reply: useTool("ls", `{}`)},
				{prompt: "u:{a}|t:", answer: "yo|", messages: []string{user("u"), useTool("rm", `{}`), user("t")}},
			},
			want: []string{"trace-000 root/0: u:>{b}|", "trace-001 history_rewritten/1 of trace-000: u:{a}|t:>yo|"},
		},
		"compaction that keeps an answer": {
			calls: []asked{
				{prompt: "u:", answer: "hi|", messages: []string{user("u")}, reply: assistant("hi")},
				{prompt: "S:hi|t:", answer: "yo|", messages: []string{user("S"), assistant("hi"), user("t")}, reply: assistant("yo")},
				{prompt: "R:yo|t:", answer: "ok|", messages: []string{user("R"), assistant("yo"), user("t")}},
			},
			want: []string{
				"trace-000 root/0: u:>hi|",
				"trace-001 history_rewritten/1 of trace-000: S:hi|t:>yo|",
				"trace-002 history_rewritten/2 of trace-001: R:yo|t:>ok|",
			},
		},
		"compaction into a summary the model wrote": {
			calls: []asked{
				{prompt: "u:", answer: "hi|", messages: []string{user("u")}, reply: assistant("hi")},
				{prompt: "u:hi|summarise:", answer: "sum|", messages: []string{user("u"), assistant("hi"), user("summarise")}, reply: assistant(strings.Repeat("sum ", 40))},
				{prompt: "S:", answer: "yo|", messages: []string{user("This goes on from: " + strings.Repeat("sum ", 40))}},
			},
			want: []string{"trace-000 root/0: u:>hi|[summarise:]sum|", "trace-001 history_rewritten/1 of trace-000: S:>yo|"},
		},
		"the same opening under another template": {
			calls: []asked{
				{prompt: "s|u:<t>", answer: "hi|", messages: []string{user("u")}, reply: assistant("hi")},
				{prompt: "s|u:Hi|t:", answer: "yo|", messages: []string{user("u"), assistant("hello"), user("t")}},
			},
			want: []string{"trace-000 root/0: s|u:<t>>hi|", "trace-001 history_rewritten/1 of trace-000: s|u:Hi|t:>yo|"},
		},
		"the same system prompt does not make one conversation": {
			calls: []asked{
				{prompt: "sys|u:", answer: "hi|", messages: []string{`{"role":"system","content":"sys"}`, user("u")}, reply: assistant("hi")},
				{prompt: "sys|v:", answer: "yo|", messages: []string{`{"role":"system","content":"sys"}`, user("v")}},
			},
			want: []string{"trace-000 root/0: sys|u:>hi|", "trace-001 root/0: sys|v:>yo|"},
		},
		"without messages half of the tokens tell": {
			calls: []asked{{prompt: "sysu:", answer: "hi|"}, {prompt: "sysv:", answer: "yo|"}, {prompt: "syAAAA", answer: "a|"}},
			want: []string{
				"trace-000 root/0: sysu:>hi|", "trace-001 history_rewritten/1 of trace-000: sysv:>yo|", "trace-002 root/0: syAAAA>a|",
			},
		},
		"a call to another engine is stepped over and its answer is context": {
			calls: []asked{
				{prompt: "u:", answer: "a|", model: "m"},
				{prompt: "u:a|t:", answer: "b|", model: "n"},
				{prompt: "u:a|t:c|w:", answer: "d|", model: "m"},
			},
			want: []string{"trace-000 root/0: u:>a|[t:c|w:]d|", "trace-001 engine_changed/1 of trace-000: u:a|t:>b|"},
		},
		"an answer that never arrived is in no trace": {
			calls: []asked{{prompt: "u:", answer: "hi|", lost: true}, {prompt: "u:", answer: "ho|"}, {prompt: "u:ho|t:", answer: "yo|"}},
			want:  []string{"trace-000 root/0: u:>ho|[t:]yo|"},
		},
		"an untrainable answer is context": {
			calls: []asked{
				{prompt: "u:", answer: "hi|"},
				{prompt: "u:hi|t:", answer: "xx|", edit: func(c *polar.Call) { c.Untrainable = "no logprobs" }},
				{prompt: "u:hi|t:xx|v:", answer: "ok|"},
			},
			want: []string{"trace-000 root/0: u:>hi|[t:xx|v:]ok|"},
		},
		"an empty answer links": {
			calls: []asked{{prompt: "u:", answer: ""}, {prompt: "u:", answer: "hi|"}, {prompt: "u:hi|t:", answer: ""}},
			want:  []string{"trace-000 root/0: u:>hi|[t:"},
		},
		"an empty answer alone makes no trace, and what was split from it has no parent": {
			calls: []asked{{prompt: "u:", answer: "", model: "a"}, {prompt: "u:t:", answer: "hi|", model: "b"}},
			want:  []string{"trace-000 engine_changed/0: u:t:>hi|"},
		},
		"an empty prompt is followed by nothing that does not begin with its answer": {
			calls: []asked{{prompt: "", answer: "hi|"}, {prompt: "u:", answer: "yo|"}, {prompt: "hi|t:", answer: "ok|"}},
			want:  []string{"trace-000 root/0: >hi|[t:]ok|", "trace-001 root/0: u:>yo|"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := calls(test.calls)
			tr, err := builder(t, "prefix_merging", test.config)(of(list))
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, trace := range tr.Traces {
				got = append(got, show(trace))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			slices.Reverse(list)
			if diff := cmp.Diff(built(builder(t, "prefix_merging", test.config), of(calls(test.calls))), built(builder(t, "prefix_merging", test.config), of(list))); diff != "" {
				t.Errorf("another order of arrival: %s", diff)
			}
		})
	}
}

func TestTraceHasAllOfItsCalls(t *testing.T) {
	t.Parallel()
	tools := func(names ...string) func(*polar.Call) {
		return func(c *polar.Call) {
			for _, n := range names {
				c.Tools = append(c.Tools, json.RawMessage(`{"name":"`+n+`"}`))
			}
		}
	}
	list := calls([]asked{
		{prompt: "u:", answer: "h|", finish: llm.FinishToolCalls, version: "7", messages: []string{user("u")}, reply: assistant("h"), edit: tools("ls")},
		{prompt: "u:h|t:", answer: "yo|", version: "7", messages: []string{user("u"), assistant("h"), user("t")}, reply: assistant("yo"), edit: tools("ls")},
		{prompt: "u:h|t:yo|v:", answer: "o|", finish: llm.FinishLength, version: "8", messages: []string{user("u"), assistant("h"), user("t"), assistant("yo"), user("v")}, reply: assistant("o"), edit: tools("ls", "rm")},
	})
	list[1].Sampled[1].Logprob = llm.NoLogprob()
	list[2].Sampled[0].Logprob = float32(math.Inf(-1))
	tr, err := builder(t, "prefix_merging", "")(of(list))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(tr, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/trace.json", got)
}

func TestCallsThatMakeNoTrace(t *testing.T) {
	t.Parallel()
	failed := func(c *polar.Call) {
		c.Error, c.Delivered, c.Prompt = &polar.CallError{Kind: llm.EngineFailed}, false, nil
	}
	list := calls([]asked{
		{prompt: "u:", answer: "hi|", lost: true},
		{prompt: "u:", answer: "hi|", edit: func(c *polar.Call) { c.Prompt = nil }},
		{prompt: "u:", answer: "", edit: func(c *polar.Call) { c.Usage.CompletionTokens = 3 }},
		{prompt: "u:", answer: "hi|", edit: func(c *polar.Call) { c.Untrainable = "no logprobs" }},
		{prompt: "u:", answer: "", edit: failed},
		{prompt: "u:", answer: ""},
	})
	for _, strategy := range []string{"per_request", "prefix_merging"} {
		tr, err := builder(t, strategy, "")(of(list))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.MarshalIndent(tr, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/no_trace_"+strategy+".json", got)
	}
}

func TestPerRequestMakesATraceOfEachCall(t *testing.T) {
	t.Parallel()
	tr, err := builder(t, "per_request", "{}")(of(calls([]asked{{prompt: "u:", answer: "hi|"}, {prompt: "u:hi|t:", answer: "yo|"}})))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, trace := range tr.Traces {
		got = append(got, show(trace))
	}
	want := []string{"trace-000 root/0: u:>hi|", "trace-001 root/0: u:hi|t:>yo|"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTwoThousandCallsAreOneTrace(t *testing.T) {
	t.Parallel()
	for _, config := range []string{`{}`, `{"drift":"split"}`} {
		list := conversation(2000, 20, 30, false, true)
		tr, err := builder(t, "prefix_merging", config)(of(list))
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Traces) != 1 || len(tr.Traces[0].Calls) != 2000 || tr.Traces[0].Trainable() != 2000*20 {
			t.Errorf("%s: %d traces", config, len(tr.Traces))
		}
	}
}

func TestACallGivenTwiceIsRefused(t *testing.T) {
	t.Parallel()
	list := calls([]asked{{prompt: "u:", answer: "hi|"}})
	for _, strategy := range []string{"per_request", "prefix_merging"} {
		if _, err := builder(t, strategy, "")(of(append(list, list...))); err == nil || !strings.Contains(err.Error(), "c0") {
			t.Errorf("%s: error %v", strategy, err)
		}
	}
}
