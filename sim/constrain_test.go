package sim_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"polar/sim"
)

const twoTools = `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"path":{"type":"string"},"depth":{"type":"integer","minimum":2}},"required":["path","depth"]}}},{"type":"function","function":{"name":"stop","parameters":{"type":"object"}}}]`

func TestToolsThatMustBeCalled(t *testing.T) {
	t.Parallel()
	s := start(t, parse(t, "rules: [{when: {user: both}, say: Well, call: [{tool: look, arguments: '{\"path\": \"a\"}'}, {tool: stop, arguments: '{}'}]}, {say: No}]"))
	for _, tc := range []struct{ user, choice, text, calls, finish string }{
		{"x", `"auto"`, "No", "", "stop"},
		{"x", `"required"`, "", `look {"path": "", "depth": 2}`, "tool_calls"},
		{"x", `{"type":"function","function":{"name":"stop"}}`, "", "stop {}", "tool_calls"},
		{"both", `"required"`, "", `look {"path": "a"}, stop {}`, "tool_calls"},
		{"both", `{"type":"function","function":{"name":"stop"}}`, "", "stop {}", "tool_calls"},
		{"both", `"none"`, "Well", "", "stop"},
	} {
		w := ask(t, s, chatPath, `{"messages":[{"role":"user","content":"`+tc.user+`"}],`+twoTools+`,"tool_choice":`+tc.choice+`}`)
		got := read(t, w.Header().Get("Content-Type"), w.Body)
		if got.Text != tc.text || strings.Join(got.Calls, ", ") != tc.calls || got.Finish != tc.finish {
			t.Errorf("%s, %s: %q %v %s", tc.user, tc.choice, got.Text, got.Calls, got.Finish)
		}
	}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"x"}],"tool_choice":"required"}`,
		`{"messages":[{"role":"user","content":"x"}],` + twoTools + `,"tool_choice":"maybe"}`,
		`{"messages":[{"role":"user","content":"x"}],` + twoTools + `,"tool_choice":{"type":"function","function":{"name":"fly"}}}`,
		`{"messages":[{"role":"user","content":"x"}],` + twoTools + `,"tool_choice":{"type":"function"}}`,
	} {
		if w := ask(t, s, chatPath, body); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"param":"tool_choice"`) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

func TestATextThatMustBeAnInstance(t *testing.T) {
	t.Parallel()
	s := start(t, parse(t, "rules: [{say: No}]"))
	for _, tc := range []struct{ format, want string }{
		{`{"type":"text"}`, "No"},
		{`{"type":"json_object"}`, "{}"},
		{
			`{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"type":["number","null"],"minimum":1.5},"c":{"type":"array","minItems":2,"items":{"$ref":"#/$defs/flag"}},"d":{"anyOf":[{"type":"null"},{"type":"string"}]},"e":{"const":7},"f":{"type":"string","minLength":3},"g":{"properties":{}},"h":{}},"required":["a","b","c","d","e","f","g","h"],"$defs":{"flag":{"type":"boolean"}}}}}`,
			`{"a": "x", "b": 1.5, "c": [false, false], "d": null, "e": 7, "f": "xxx", "g": {}, "h": null}`,
		},
		{`{"type":"json_schema","json_schema":{"schema":{"$ref":"#"}}}`, "null"},
	} {
		w := ask(t, s, chatPath, `{"messages":[{"role":"user","content":"x"}],"response_format":`+tc.format+`}`)
		got := read(t, w.Header().Get("Content-Type"), w.Body)
		if got.Text != tc.want || tc.want != "No" && !json.Valid([]byte(got.Text)) {
			t.Errorf("%s:\n got %s\nwant %s", tc.format, got.Text, tc.want)
		}
	}
	for _, format := range []string{`{"type":"xml"}`, `{"type":"json_schema"}`, `{"type":"json_schema","json_schema":{}}`, `1`} {
		if w := ask(t, s, chatPath, `{"messages":[{"role":"user","content":"x"}],"response_format":`+format+`}`); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", format, w.Code, w.Body)
		}
	}
}

func TestAnImageIsAFixedNumberOfTokens(t *testing.T) {
	t.Parallel()
	s := start(t, parse(t, "image_tokens: 5\nrules: [{say: Nice}]"))
	const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
	body := `{"messages":[{"role":"user","content":[{"type":"text","text":"one "},{"type":"text","text":"word"},` + image + `,{"type":"text","text":"more"},` + image + `]}]}`
	if w := ask(t, s, chatPath, body); w.Code != http.StatusOK {
		t.Fatal(w.Body)
	}
	ids := s.Calls()[0].PromptIDs
	images := slices.Repeat([]int32{sim.ImagePlaceholder}, 5)
	want := sim.Encode(append(sim.Encode(sim.Encode([]int32{sim.StartOfTurn}, "user"), "\n"), sim.Encode(nil, "one word")...), "")
	want = append(append(want, images...), sim.Encode(nil, "more")...)
	want = append(append(want, images...), sim.EndOfTurn)
	if len(ids) < len(want) || !slices.Equal(ids[:len(want)], want) {
		t.Errorf("prompt %v, want it to begin with %v", ids, want)
	}
}

func TestAnOlderVLLM(t *testing.T) {
	t.Parallel()
	s := start(t, parse(t, "no_ids: true\nrules: [{say: Hello}]"))
	for _, stream := range []string{"true", "false"} {
		w := ask(t, s, chatPath, `{"messages":[{"role":"user","content":"x"}],"logprobs":true,"return_token_ids":true,"stream":`+stream+`}`)
		got := read(t, w.Header().Get("Content-Type"), w.Body)
		if got.Text != "Hello" || got.Prompt != nil || got.Tokens != nil || len(got.Logprobs) != len(s.Calls()[0].TokenIDs) {
			t.Errorf("streamed %s: %+v", stream, got)
		}
	}
}

func TestAStopTokenThatIsTrimmed(t *testing.T) {
	t.Parallel()
	for trim, less := range map[string][2]int{"ids": {1, 0}, "logprobs": {0, 1}} {
		s := start(t, parse(t, "trim_stop: "+trim+"\nrules: [{say: Hello}]"))
		for _, stream := range []string{"true", "false"} {
			w := ask(t, s, chatPath, `{"messages":[{"role":"user","content":"x"}],"logprobs":true,"return_token_ids":true,"stream":`+stream+`}`)
			got := read(t, w.Header().Get("Content-Type"), w.Body)
			if n := len(s.Calls()[0].TokenIDs); len(got.Tokens) != n-less[0] || len(got.Logprobs) != n-less[1] {
				t.Errorf("%s, streamed %s: %d ids and %d logprobs of %d", trim, stream, len(got.Tokens), len(got.Logprobs), n)
			}
		}
	}
}

func TestACacheReportCountsWhatCameBefore(t *testing.T) {
	t.Parallel()
	s := start(t, parse(t, "cache_report: true\nrules: [{say: Hello}]"))
	first := `{"role":"user","content":"` + strings.Repeat("word ", 30) + `"}`
	cached := func(messages string) int {
		var r struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		if err := json.Unmarshal(ask(t, s, chatPath, `{"messages":[`+messages+`]}`).Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return r.Usage.Details.Cached
	}
	if n := cached(first); n != 0 {
		t.Errorf("%d tokens of a first prompt came before", n)
	}
	n := cached(first + `,{"role":"assistant","content":"Hello"},{"role":"user","content":"On"}`)
	if calls := s.Calls(); n%16 != 0 || n < len(calls[0].PromptIDs)-32 || n > len(calls[0].PromptIDs) {
		t.Errorf("%d tokens came before, the first prompt had %d", n, len(calls[0].PromptIDs))
	}
	if n := cached(`{"role":"user","content":"another"}`); n != 0 {
		t.Errorf("%d tokens of another prompt came before", n)
	}
}
