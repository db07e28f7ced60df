package llm_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"polar/llm"
	"polar/rawjson"
)

func TestMessageKeepsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	const in = `{"role":"assistant","content":[{"type":"text","text":"<a>"},{"type":"image_url","image_url":{"url":"data:x"}}],` +
		`"reasoning_content":"why","tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"b\": 1.0}"},"extra":{"z":1,"a":2}}],` +
		`"refusal":null,"odd":{"z":1.0,"a":"<"}}`
	m, err := llm.ParseMessage([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.AppendJSON(nil, "reasoning_content")); got != in {
		t.Errorf("\n got %s\nwant %s", got, in)
	}
	if got := m.Text(); got != "<a>" {
		t.Errorf("text %q", got)
	}
}

func TestBadMessageNamesTheField(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ in, want string }{
		"no role":           {`{"content":"x"}`, "role: missing"},
		"number as content": {`{"role":"user","content":3}`, "content: a string or a list of parts expected, got a number"},
		"object as role":    {`{"role":{}}`, "role: a string expected, got an object"},
		"not an object":     {`"x"`, "not valid JSON: an object expected at byte 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := llm.ParseMessage([]byte(tt.in)); err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestImposedSamplingWins(t *testing.T) {
	t.Parallel()
	imposed := llm.Sampling{Temperature: new(1.0), ChatTemplateKwargs: rawjson.Object{{Key: "a", Value: json.RawMessage("1")}}}
	asked := llm.Sampling{
		Temperature: new(0.0), TopP: new(0.5), Stop: []string{"x"},
		ChatTemplateKwargs: rawjson.Object{{Key: "b", Value: json.RawMessage("2")}, {Key: "a", Value: json.RawMessage("0")}},
	}
	got := imposed.Over(asked)
	want := llm.Sampling{
		Temperature: new(1.0), TopP: new(0.5), Stop: []string{"x"},
		ChatTemplateKwargs: rawjson.Object{{Key: "b", Value: json.RawMessage("2")}, {Key: "a", Value: json.RawMessage("1")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if string(asked.ChatTemplateKwargs.Get("a")) != "0" {
		t.Error("what the harness asked was changed")
	}
}

func TestCollectFoldsAStream(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	events := func(yield func(llm.Event, error) bool) {
		_ = yield(llm.Event{PromptIDs: llm.IDs{1, 2}, Engine: &llm.Engine{Kind: "vllm"}}, nil) &&
			yield(llm.Event{Reasoning: "hm", Tokens: []llm.Token{{ID: 3, Logprob: -1}}}, nil) &&
			yield(llm.Event{Text: "a"}, nil) && yield(llm.Event{Text: "b"}, nil) &&
			yield(llm.Event{ToolCalls: []llm.ToolCallDelta{{Index: 1, ID: "c2", Name: "two"}, {Index: 0, ID: "c1", Name: "one", Arguments: "{"}}}, nil) &&
			yield(llm.Event{ToolCalls: []llm.ToolCallDelta{{Index: 0, Arguments: "}"}}}, nil) &&
			yield(llm.Event{}, cut)
	}
	got, err := llm.Collect(events)
	if !errors.Is(err, cut) {
		t.Errorf("error %v", err)
	}
	want := llm.Reply{
		Message: llm.Message{
			Role: "assistant", Content: json.RawMessage(`"ab"`), Reasoning: "hm",
			ToolCalls: []llm.ToolCall{{ID: "c1", Name: "one", Arguments: "{}"}, {ID: "c2", Name: "two"}},
		},
		PromptIDs: llm.IDs{1, 2}, Tokens: []llm.Token{{ID: 3, Logprob: -1}}, Engine: llm.Engine{Kind: "vllm"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(llm.Message{})); diff != "" {
		t.Error(diff)
	}
}

func TestMissingLogprobIsNull(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(llm.Logprobs{-0.125, llm.NoLogprob(), 0})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(data); got != "[-0.125,null,0]" {
		t.Errorf("got %s", got)
	}
	var back llm.Logprobs
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if len(back) != 3 || !math.IsNaN(float64(back[1])) || back[0] != -0.125 {
		t.Errorf("read back %v", back)
	}
}

func TestPiecesOfAMessageAreItsJSON(t *testing.T) {
	t.Parallel()
	read, err := llm.ParseMessage([]byte(`{"role":"user", "content":"as written"}`))
	if err != nil {
		t.Fatal(err)
	}
	content := json.RawMessage(`[{"type":"image_url"}]`)
	for _, m := range []llm.Message{
		read, read.WithRole("system"),
		{Role: "user", Content: content},
		{Role: "user"},
		{Role: "assistant", Reasoning: "why", ToolCalls: []llm.ToolCall{{ID: "1", Name: "f"}}},
	} {
		before, middle, after := m.Pieces("reasoning")
		if got := string(before) + string(middle) + string(after); got != string(m.JSON("reasoning")) {
			t.Errorf("pieces %s, JSON %s", got, m.JSON("reasoning"))
		}
	}
	if _, got, _ := (llm.Message{Role: "user", Content: content}).Pieces(""); &got[0] != &content[0] {
		t.Error("the content was copied")
	}
}
