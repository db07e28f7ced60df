package sim_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/sim"
)

func TestBadRequestsAreRefusedInVLLMsShape(t *testing.T) {
	t.Parallel()
	c := sim.Defaults()
	c.ContextLimit, c.MaxBodyBytes, c.Model, c.StrictModel = 100, 2000, "m", true
	s := start(t, c)
	const messages = `"model":"m","messages":[{"role":"user","content":"x"}]`
	for name, c := range map[string]struct {
		body   string
		status int
		kind   string
		param  string
		want   string
	}{
		"no JSON":                {`{"messages":`, 400, "BadRequestError", "", "not valid JSON"},
		"no object":              {`[]`, 400, "BadRequestError", "", "not valid JSON: an object expected"},
		"nothing":                {``, 400, "BadRequestError", "", "not valid JSON"},
		"no messages":            {`{"model":"m"}`, 400, "BadRequestError", "messages", "messages: missing"},
		"an empty conversation":  {`{"model":"m","messages":[]}`, 400, "BadRequestError", "messages", "messages: missing"},
		"a message without role": {`{"model":"m","messages":[{"role":"user","content":"x"},{"content":"x"}]}`, 400, "BadRequestError", "messages", "messages: [1]: role: missing"},
		"an empty list of tools": {`{` + messages + `,"tools":[]}`, 400, "BadRequestError", "tools", "empty list"},
		"another model":          {`{"model":"x","messages":[{"role":"user","content":"x"}]}`, 404, "NotFoundError", "model", "The model `x` does not exist."},
		"a wrong type":           {`{` + messages + `,"stream":1}`, 400, "BadRequestError", "stream", "stream: true or false expected, got a number"},
		"a wrong type inside":    {`{` + messages + `,"stream_options":{"include_usage":1}}`, 400, "BadRequestError", "stream_options", "include_usage: true or false"},
		"no tokens":              {`{` + messages + `,"max_tokens":0}`, 400, "BadRequestError", "max_tokens", "at least 1"},
		"several choices":        {`{` + messages + `,"n":2}`, 400, "BadRequestError", "n", "2 choices"},
		"too many alternatives":  {`{` + messages + `,"logprobs":true,"top_logprobs":21}`, 400, "BadRequestError", "top_logprobs", "0 to 20"},
		"alternatives to what":   {`{` + messages + `,"top_logprobs":2}`, 400, "BadRequestError", "top_logprobs", "logprobs"},
		"a negative temperature": {`{` + messages + `,"temperature":-1}`, 400, "BadRequestError", "temperature", "non-negative"},
		"a long prompt":          {`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x ", 300) + `"}]}`, 400, "BadRequestError", "messages", "This model's maximum context length is 100 tokens. However, your messages resulted in "},
		"a long answer":          {`{` + messages + `,"max_completion_tokens":99}`, 400, "BadRequestError", "max_tokens", "'max_tokens' or 'max_completion_tokens' is too large: 99. This model's maximum context length is 100 tokens"},
		"a large body":           {strings.Repeat(" ", 3000), 413, "BadRequestError", "", "larger than 2000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ask(t, s, chatPath, c.body)
			var got struct {
				Error struct {
					Message string  `json:"message"`
					Type    string  `json:"type"`
					Param   *string `json:"param"`
					Code    int     `json:"code"`
				} `json:"error"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
			param := ""
			if got.Error.Param != nil {
				param = *got.Error.Param
			}
			if w.Code != c.status || got.Error.Code != c.status || got.Error.Type != c.kind || param != c.param || !strings.Contains(got.Error.Message, c.want) {
				t.Errorf("status %d, %s", w.Code, w.Body)
			}
		})
	}
}

func TestTheOtherRoutes(t *testing.T) {
	t.Parallel()
	c := sim.Defaults()
	c.Model, c.ContextLimit = "tiny", 1000
	s := start(t, c)
	get := func(path string) string {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
		return w.Body.String()
	}
	if got := get("/health"); got != "" {
		t.Errorf("health says %q", got)
	}
	if got := get("/version"); !strings.HasPrefix(got, `{"version":"`) {
		t.Errorf("version says %s", got)
	}
	if got := get("/v1/models"); !strings.Contains(got, `"id":"tiny"`) || !strings.Contains(got, `"max_model_len":1000`) || !json.Valid([]byte(got)) {
		t.Errorf("models says %s", got)
	}
	for name, c := range map[string]struct{ path, body, want string }{
		"tokens of a prompt":          {"/tokenize", `{"prompt":"cat<|im_end|>","return_token_strs":true}`, `{"count":2,"max_model_len":1000,"tokens":[1651444,258],"token_strs":["cat","<|im_end|>"]}`},
		"text of tokens":              {"/detokenize", `{"tokens":[1651444,258]}`, `{"prompt":"cat<|im_end|>"}`},
		"text of nothing":             {"/detokenize", `{"tokens":[]}`, `{"prompt":""}`},
		"tokens of neither":           {"/tokenize", `{}`, "give prompt or messages"},
		"text of no tokens":           {"/detokenize", `{}`, "tokens: missing"},
		"text outside the vocabulary": {"/detokenize", `{"tokens":[3000000]}`, "3000000 is not in the vocabulary"},
		"text of what is no list":     {"/detokenize", `{"tokens":"x"}`, "tokens: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ask(t, s, c.path, c.body).Body.String(); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	var got struct{ Tokens []int32 }
	body := request(hello, "")
	if err := json.Unmarshal(ask(t, s, "/tokenize", body).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(chat(t, s, body).Prompt, got.Tokens); diff != "" {
		t.Errorf("a conversation has other tokens than its call: %s", diff)
	}
}

func TestAFewOptionsOfVLLM(t *testing.T) {
	t.Parallel()
	c := parse(t, "missing_logprobs: 0.5\nrules: [{think: Hm, say: one two three}]")
	s := start(t, c)
	missing := 0
	for range 20 {
		for _, l := range chat(t, s, request(hello, "")).Logprobs {
			if l == -9999 {
				missing++
			}
		}
	}
	if missing < 60 || missing > 160 {
		t.Errorf("%d logprobs of 220 are missing, want about half", missing)
	}
	if a := chat(t, s, request(hello, `"top_logprobs":null`)); a.Logprobs != nil || a.Tokens == nil {
		t.Errorf("an explicit null for top_logprobs still gives %v", a.Logprobs)
	}
	if a := chat(t, s, request(hello, `"include_reasoning":false`)); a.Reasoning != "" || a.Tokens != nil || a.Logprobs != nil || a.Text != "one two three" {
		t.Errorf("include_reasoning false still gives %+v", a)
	}
	a := chat(t, s, request(hello, `"stop":"wo t","include_stop_str_in_output":true`))
	if a.Text != "one two t" || a.Finish != "stop" || a.StopReason != "wo t" || !strings.HasSuffix(string(sim.Decode(a.Tokens)), "one two th") {
		t.Errorf("stopped at %q, %q, %v", a.Text, a.Finish, a.StopReason)
	}
	if a := chat(t, s, request(hello, `"add_generation_prompt":false`)); !strings.HasSuffix(string(sim.Decode(a.Prompt)), "<|im_end|>\n") {
		t.Error("the prompt opens a turn although told not to")
	}
}

// FuzzChat holds that whatever is sent is answered in JSON or as a stream, and
// nothing breaks.
func FuzzChat(f *testing.F) {
	for _, s := range []string{
		request(hello, ""), request(hello, `"stream":true,"max_tokens":3,"stop":["a",""]`), `{}`, `{"messages":[{"role":"user","content":[{"text":1},2]}]}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"\ud800","arguments":"\u0000"}}]}],"tools":[1,{"function":{"name":"bash","parameters":{"properties":{"command":{"type":"array"}}}}}]}`,
		`{"messages":[{"role":"user","content":"Create a.b containing x"}],"tools":[` + bashTool + `],"logprobs":true,"top_logprobs":20,"seed":-1}`,
	} {
		f.Add(s)
	}
	s := start(f, sim.Defaults())
	f.Fuzz(func(t *testing.T, body string) {
		w := ask(t, s, chatPath, body)
		kind := w.Header().Get("Content-Type")
		switch {
		case w.Code == http.StatusOK && strings.HasPrefix(kind, "text/event-stream"):
			if a := read(t, kind, w.Body); !a.Done || a.Finish == "" {
				t.Errorf("a stream without an end")
			}
		case !json.Valid(w.Body.Bytes()):
			t.Errorf("status %d with %q", w.Code, w.Body)
		}
	})
}
