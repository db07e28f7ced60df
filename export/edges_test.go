package export_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"polar/export"
)

// one is a result with the traces given as JSON, each completed with what every
// trace has.
func one(traces ...string) memory {
	const rest = `"trace_id":"trace-00%d","prompt_ids":[1],"response_ids":[2,3],"loss_mask":[1,1],"response_logprobs":[-1,-2],"finish_reason":"stop"`
	var list []string
	for i, t := range traces {
		list = append(list, "{"+fmt.Sprintf(rest, i)+","+t+"}")
	}
	raw := fmt.Sprintf(`{"session_id":"s.0","task_id":"s","status":"COMPLETED","trajectory":{"traces":[%s]}}`, strings.Join(list, ","))
	return memory{results: []json.RawMessage{json.RawMessage(raw)}, per: 1}
}

const (
	asked    = `"prompt_messages":[{"role":"user","content":"q"}]`
	answered = `"response_messages":[{"role":"assistant","content":"a"}]`
)

func TestWhatIsOddInATrace(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		format string
		source memory
		want   string // in the output
		left   string
	}{
		"versions that are no numbers are counted": {"areal", one(`"role":"main","reward":1,"policy_versions":[["v-b",0],["v-a",1]]`), `"versions":[[-1,0,1]]`, ""},
		"versions that are not known count too":    {"areal", one(`"role":"main","reward":1,"policy_versions":[["12",1]]`), `"versions":[[-1,0,1]]`, ""},
		"no version at all":                        {"areal", one(`"role":"main","reward":1`), `"versions":[[-1,0,0]]`, ""},
		"no reward where one is needed":            {"areal", one(`"role":"main"`), "", "1 traces without a reward"},
		"no reward for a last step":                {"skyrl", one(`"role":"main"`), "", "1 traces without a reward"},
		"no reward where it may be null":           {"verl", one(`"role":"main"`), `"reward_score":null`, ""},
		"an image in ShareGPT": {
			"sharegpt", one(`"role":"main",` + answered + `,"prompt_messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]`),
			"", "1 traces with more than text",
		},
		"an image in NeMo Gym": {
			"nemo_gym", one(`"role":"main",` + answered + `,"prompt_messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]`),
			`"content":[{"type":"input_image","image_url":"data:"}]`, "",
		},
		"more answers than turns": {
			"nemo_gym", one(`"role":"main",` + asked + `,"response_messages":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]`),
			"", "1 traces whose turns and messages do not match",
		},
		"fewer answers than turns": {"nemo_gym", one(`"role":"main",` + asked + `,"response_messages":[]`), "", "1 traces whose turns and messages do not match"},
		"an answer that came with the prompt": {
			"sft", one(`"role":"main",` + answered + `,"prompt_messages":[{"role":"user","content":"q"},{"role":"assistant","content":"old"}]`),
			`{"role":"assistant","content":"old","weight":0},{"role":"assistant","content":"a"}`, "",
		},
		"two calls at once": {
			"sharegpt", one(`"role":"main",` + asked + `,"response_messages":[{"role":"assistant","content":null,"tool_calls":[` +
				`{"id":"1","function":{"name":"f","arguments":"{}"}},{"id":"2","function":{"name":"g","arguments":"oops"}}]}]`),
			`{"from":"function_call","value":"[{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":\"oops\"}]"}`, "",
		},
		"arguments that are no object": {
			"atif", one(`"role":"main",` + asked + `,"response_messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"2","function":{"name":"g","arguments":"oops"}}]}]`),
			`"arguments":{},"extra":{"arguments":"oops"}`, "",
		},
		"a later segment": {
			"atif", one(`"role":"main",`+asked+","+answered, `"role":"main","segment":1,"prompt_messages":[{"role":"user","content":"summary"}],`+answered),
			`{"step_id":3,"source":"user","message":"summary","is_copied_context":true}`, "",
		},
		"a session without traces in polar": {"polar", one(), `"session_id":"s.0"`, ""},
		"a session without traces in atif":  {"atif", one(), "", "1 sessions without a trace"},
		"a session without traces in trl":   {"trl", one(), "", "1 sessions without a trace"},
		"a group of one":                    {"dpo", one(`"role":"main","reward":1,` + asked + "," + answered), "", "1 groups without a better and a worse session"},
		"a group without a reward":          {"dpo", one(`"role":"main",` + asked + "," + answered), "", "1 sessions without an answer and a reward"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, sum := run(t, export.Config{Source: tt.source, Format: tt.format})
			if !strings.Contains(out, tt.want) || (out == "") != (tt.want == "") {
				t.Errorf("got %s", out)
			}
			if got := strings.Join(reasons(sum), " "); got != tt.left {
				t.Errorf("left out %q, want %q", got, tt.left)
			}
		})
	}
}

func TestPairsShareWhatTheyBeginWith(t *testing.T) {
	t.Parallel()
	source := memory{per: 2}
	for i, reward := range []int{0, 1} {
		m := one(fmt.Sprintf(`"role":"main","reward":%d,"prompt_messages":[{"role":"system","content":"s"},{"role":"user","content":"in /tmp/%d"}],`, reward, i) + answered)
		source.results = append(source.results, m.results...)
	}
	out, _ := run(t, export.Config{Source: source, Format: "dpo"})
	want := `{"prompt":[{"role":"system","content":"s"}],` +
		`"chosen":[{"role":"user","content":"in /tmp/1"},{"role":"assistant","content":"a"}],` +
		`"rejected":[{"role":"user","content":"in /tmp/0"},{"role":"assistant","content":"a"}],` +
		`"score_chosen":1,"score_rejected":0,"task_id":"s","chosen_session_id":"s.0","rejected_session_id":"s.0"}` + "\n"
	if out != want {
		t.Errorf("got %s", out)
	}
}
