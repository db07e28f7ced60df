package sim_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/sim"
)

// get asks for a path without a socket.
func get(tb testing.TB, s http.Handler, path string) *httptest.ResponseRecorder {
	tb.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, path, http.NoBody))
	return w
}

// sglangReply is what tests look at in an answer of SGLang's, decoded with
// encoding/json so as to check what is written by hand.
type sglangReply struct {
	Text     string   `json:"text"`
	Output   []int32  `json:"output_ids"`
	MetaInfo metaInfo `json:"meta_info"`
	Choices  []struct {
		Message struct {
			Content   *string `json:"content"`
			Reasoning *string `json:"reasoning_content"`
		} `json:"message"`
		Finish   string    `json:"finish_reason"`
		Prompt   []int32   `json:"prompt_token_ids"`
		TokenIDs []int32   `json:"token_ids"`
		Response []int32   `json:"response_token_ids"`
		MetaInfo *metaInfo `json:"meta_info"`
	} `json:"choices"`
	SGLExt *struct {
		Input  []int32   `json:"input_ids"`
		Output [][]int32 `json:"output_ids"`
	} `json:"sglext"`
	Message string `json:"message"` // of an error
}

type metaInfo struct {
	Finish *struct {
		Type    string `json:"type"`
		Matched any    `json:"matched"`
	} `json:"finish_reason"`
	Sampled   [][]any `json:"output_token_logprobs"`
	Length    int     `json:"output_token_logprobs_length"`
	Completed int     `json:"completion_tokens"`
	Prompt    int     `json:"prompt_tokens"`
}

func decode(tb testing.TB, data []byte) (r sglangReply) {
	tb.Helper()
	if err := json.Unmarshal(data, &r); err != nil {
		tb.Fatalf("%s: %v", data, err)
	}
	return r
}

func sglang(tb testing.TB, more string) *sim.Server {
	tb.Helper()
	return start(tb, parse(tb, "engine: sglang\nrules: [{when: {user: think}, think: Hm, say: Done}, {say: Hello there 🙂}]\n"+more))
}

func TestEachVersionHasItsIDsInItsPlace(t *testing.T) {
	t.Parallel()
	const body = `{"messages":[{"role":"user","content":"Go"}],"logprobs":true,"return_prompt_token_ids":true,"return_meta_info":true,"return_token_ids":true,"return_input_ids":true,"return_output_ids":true}`
	for _, tc := range []struct {
		style string
		want  []string
	}{
		{"v0.5.10", nil},
		{"v0.5.12", nil},
		{"v0.5.13", []string{"prompt_token_ids", "meta_info"}},
		{"v0.5.17", []string{"prompt_token_ids", "token_ids", "meta_info"}},
		{"v0.5.18", []string{"prompt_token_ids", "response_token_ids", "meta_info"}},
		{"next", []string{"prompt_token_ids", "response_token_ids", "meta_info", "sglext"}},
	} {
		s := sglang(t, "sglang_style: "+tc.style)
		r := decode(t, ask(t, s, chatPath, body).Body.Bytes())
		rec := s.Calls()[0]
		var got []string
		c := r.Choices[0]
		for _, place := range []struct {
			name string
			ids  []int32
			want []int32
		}{{"prompt_token_ids", c.Prompt, rec.PromptIDs}, {"token_ids", c.TokenIDs, rec.TokenIDs}, {"response_token_ids", c.Response, rec.TokenIDs}} {
			if place.ids != nil {
				got = append(got, place.name)
				if !slices.Equal(place.ids, place.want) {
					t.Errorf("%s: %s is %v, recorded %v", tc.style, place.name, place.ids, place.want)
				}
			}
		}
		if m := c.MetaInfo; m != nil {
			got = append(got, "meta_info")
			if len(m.Sampled) != len(rec.TokenIDs) || m.Length != len(rec.TokenIDs) || m.Completed != len(rec.TokenIDs) || m.Prompt != len(rec.PromptIDs) ||
				m.Finish.Type != "stop" || m.Finish.Matched != float64(sim.EndOfTurn) {
				t.Errorf("%s: meta_info %+v", tc.style, m)
			}
			for i, pair := range m.Sampled {
				if pair[0] != float64(rec.Logprobs[i]) || pair[1] != float64(rec.TokenIDs[i]) {
					t.Errorf("%s: token %d is %v, recorded %v %v", tc.style, i, pair, rec.Logprobs[i], rec.TokenIDs[i])
				}
			}
		}
		if r.SGLExt != nil {
			got = append(got, "sglext")
			if !slices.Equal(r.SGLExt.Input, []int32(rec.PromptIDs)) || !slices.Equal(r.SGLExt.Output[0], []int32(rec.TokenIDs)) {
				t.Errorf("%s: sglext %+v", tc.style, r.SGLExt)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tc.style, diff)
		}
	}
}

func TestIDsOfAStreamAreRefusedUntilThereIsAPlaceForThem(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		style, flag string
		refused     bool
	}{
		{"v0.5.12", "return_meta_info", false},
		{"v0.5.13", "return_meta_info", true},
		{"v0.5.13", "return_prompt_token_ids", true},
		{"v0.5.13", "return_token_ids", false},
		{"v0.5.18", "return_token_ids", true},
		{"next", "return_token_ids", true},
		{"next", "return_output_ids", false},
	} {
		w := ask(t, sglang(t, "sglang_style: "+tc.style), chatPath, `{"messages":[{"role":"user","content":"Go"}],"stream":true,"`+tc.flag+`":true}`)
		if got := w.Code == http.StatusBadRequest; got != tc.refused || got && !strings.Contains(decode(t, w.Body.Bytes()).Message, tc.flag+" is not supported with streaming") {
			t.Errorf("%s, %s: %d %s", tc.style, tc.flag, w.Code, w.Body)
		}
		if got := strings.Contains(w.Body.String(), `"sglext":{"output_ids":[[`); got != (tc.flag == "return_output_ids") {
			t.Errorf("%s, %s: %s", tc.style, tc.flag, w.Body)
		}
	}
}

func TestGenerateContinuesAPromptAsAChatWould(t *testing.T) {
	t.Parallel()
	const conversation = `"messages":[{"role":"system","content":"Be\nkind."},{"role":"user","content":"please think"},{"role":"assistant","content":"No.","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"x","tool_call_id":"1"},{"role":"user","content":"do think"}],` +
		`"tools":[{"type": "function","function":{"name":"f","description":"two\nlines","parameters":{}}}]`
	for name, more := range map[string]string{"everything so far": "", "what is new": "incremental_streaming: true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sglang(t, more+"\nnoncanonical: 0.5")
			var tokens struct{ Tokens []int32 }
			if err := json.Unmarshal(ask(t, s, "/tokenize", `{`+conversation+`}`).Body.Bytes(), &tokens); err != nil {
				t.Fatal(err)
			}
			ask(t, s, chatPath, `{`+conversation+`,"seed":4}`)
			input, err := json.Marshal(tokens.Tokens)
			if err != nil {
				t.Fatal(err)
			}
			const params = `,"return_logprob":true,"sampling_params":{"max_new_tokens":null,"sampling_seed":4,"skip_special_tokens":false}`
			whole := decode(t, ask(t, s, "/generate", `{"input_ids":`+string(input)+params+`}`).Body.Bytes())
			w := ask(t, s, "/generate", `{"input_ids":`+string(input)+params+`,"stream":true}`)
			calls := s.Calls()
			for _, c := range calls[1:] {
				if diff := cmp.Diff(calls[0].TokenIDs, c.TokenIDs); diff != "" || !slices.Equal(c.PromptIDs, calls[0].PromptIDs) {
					t.Errorf("not as the chat (-chat +got)\n%s", diff)
				}
			}
			if whole.Text != "<think>\nHm\n</think>\n\nDone" || !slices.Equal(whole.Output, []int32(calls[0].TokenIDs)) || whole.MetaInfo.Finish.Type != "stop" {
				t.Errorf("in one piece %+v", whole)
			}
			text, ids, last := "", []int32(nil), sglangReply{}
			lines := bufio.NewScanner(w.Body)
			for lines.Scan() {
				data, ok := strings.CutPrefix(lines.Text(), "data: ")
				if !ok || data == "[DONE]" {
					continue
				}
				last = decode(t, []byte(data))
				if more == "" {
					text, ids = "", nil
				}
				text += last.Text
				ids = append(ids, last.Output...)
			}
			if text != whole.Text || !slices.Equal(ids, whole.Output) || last.MetaInfo.Finish == nil || last.MetaInfo.Completed != len(ids) {
				t.Errorf("streamed %q %v %+v", text, ids, last.MetaInfo)
			}
		})
	}
}

func TestTheParsersOfAnSGLangServer(t *testing.T) {
	t.Parallel()
	s := sglang(t, "")
	text := `<think>\nHm\n</think>\n\nLook:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>`
	for _, tc := range []struct{ path, body, want string }{
		{"/separate_reasoning", `{"text":"` + text + `","reasoning_parser":"qwen3"}`, `{"reasoning_text":"Hm","text":"Look:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"}`},
		{"/separate_reasoning", `{"text":"plain","reasoning_parser":"qwen3"}`, `{"reasoning_text":"","text":"plain"}`},
		{"/separate_reasoning", `{"text":"plain","reasoning_parser":"kimi"}`, `{"object":"error","message":"Unsupported reasoning_parser: \"kimi\"","type":"BadRequestError","param":"reasoning_parser","code":400}`},
		{"/parse_function_call", `{"text":"Look:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>","tools":[],"tool_call_parser":"qwen25"}`, `{"normal_text":"Look:","calls":[{"tool_index":0,"name":"f","parameters":"{\"a\": 1}"}]}`},
		{"/parse_function_call", `{"text":`, `{"object":"error","message":"not valid JSON: a value expected at byte 8","type":"BadRequestError","param":null,"code":400}`},
	} {
		if got := ask(t, s, tc.path, tc.body).Body.String(); got != tc.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tc.path, tc.body, got, tc.want)
		}
	}
}

func TestWhatAnSGLangServerSaysOfItself(t *testing.T) {
	t.Parallel()
	front := sglang(t, "workers: [http://a:1, http://b:2]\nsglang_style: next")
	bare := sglang(t, "no_parsers: true")
	for _, tc := range []struct {
		s          *sim.Server
		path, want string
	}{
		{front, "/server_info", `"tool_call_parser":"qwen25","reasoning_parser":"qwen3","incremental_streaming_output":false,"version":"0.5.19.dev0+polar.sim"`},
		{bare, "/get_server_info", `"tool_call_parser":null,"reasoning_parser":null,"incremental_streaming_output":false,"version":"0.5.18+polar.sim"`},
		{bare, "/model_info", `"served_model_name":"sim"`},
		{front, "/workers", `{"id":"worker-1","url":"http://b:2","model_id":"sim","worker_type":"regular","is_healthy":true}`},
		{front, "/v1/models", `"owned_by":"sglang"`},
	} {
		if got := get(t, tc.s, tc.path); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), tc.want) || !json.Valid(got.Body.Bytes()) {
			t.Errorf("%s: %d %s", tc.path, got.Code, got.Body)
		}
	}
	for _, path := range []string{"/workers", "/version"} {
		if got := get(t, bare, path).Code; got != http.StatusNotFound {
			t.Errorf("%s: %d", path, got)
		}
	}
	r := decode(t, ask(t, front, chatPath, `{"messages":[{"role":"user","content":"Go"}],"logprobs":true,"return_token_ids":true,"return_output_ids":true}`).Body.Bytes())
	if r.Choices[0].Response != nil || r.SGLExt != nil {
		t.Errorf("a router gave ids: %+v", r)
	}
}

func TestRefusalsInSGLangsWords(t *testing.T) {
	t.Parallel()
	s := sglang(t, "context_limit: 20")
	old := sglang(t, "sglang_style: v0.5.10")
	for _, tc := range []struct {
		s                *sim.Server
		path, body, want string
	}{
		{s, chatPath, `{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 40) + `"}]}`, "is longer than the model's context length (20 tokens)."},
		{s, chatPath, `{"messages":[{"role":"user","content":"x"}],"max_tokens":50}`, "Requested token count exceeds the model's maximum context length of 20 tokens."},
		{s, "/generate", `{"sampling_params":{}}`, "Either text, input_ids"},
		{s, "/generate", `{"input_ids":[1],"sampling_params":{"max_new_tokens":0}}`, "max_new_tokens must be at least 1"},
		{s, "/generate", `{"input_ids":"x"}`, "input_ids: "},
		{old, "/tokenize", `{"messages":[{"role":"user","content":"x"}]}`, "prompt: Field required"},
	} {
		w := ask(t, tc.s, tc.path, tc.body)
		if got := decode(t, w.Body.Bytes()).Message; w.Code != http.StatusBadRequest || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %d %s", tc.body, w.Code, w.Body)
		}
	}
	if w := ask(t, s, chatPath, `{"messages":[{"role":"user","content":"x"}],"tools":[],"max_tokens":1}`); w.Code != http.StatusOK {
		t.Errorf("an empty list of tools: %s", w.Body)
	}
}

func TestSettingsOfAnEngineThatCannotBe(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"engine: tgi":                      "engine: is \"tgi\"",
		"engine: sglang\nsglang_style: v9": "sglang_style: is \"v9\", must be one of v0.5.10,",
		"no_parsers: true":                 "have a meaning for sglang only",
		"engine: sglang\nno_ids: true":     "no_ids: has a meaning for vllm only",
		"trim_stop: both":                  "trim_stop: is \"both\"",
		"image_tokens: -1":                 "image_tokens: must not be below 0",
	} {
		if _, err := sim.Parse([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestAStreamWithoutParsersLosesLogprobsOfWhatShowsNothing(t *testing.T) {
	t.Parallel()
	const body = `{"messages":[{"role":"user","content":"Go"}],"stream":true,"logprobs":true}`
	for more, lost := range map[string]bool{"no_parsers: true": true, "no_parsers: false": false} {
		s := sglang(t, more)
		w := ask(t, s, chatPath, body)
		got := read(t, w.Header().Get("Content-Type"), w.Body)
		if n := len(s.Calls()[0].TokenIDs); (len(got.Logprobs) < n) != lost || got.Text != "Hello there 🙂" || !got.Done {
			t.Errorf("%s: %d logprobs of %d, %q", more, len(got.Logprobs), n, got.Text)
		}
	}
}
