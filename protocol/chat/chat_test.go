package chat_test

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/llm"
	"polar/protocol/chat"
	"polar/protocol/protocoltest"
)

func TestBadRequestsNameTheField(t *testing.T) {
	t.Parallel()
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	tests := map[string]struct{ body, param, message string }{
		"not JSON":               {`{"model":`, "", "not valid JSON: a value expected at byte 9"},
		"nothing":                {``, "", "not valid JSON: a value expected at byte 0"},
		"not an object":          {`[]`, "", "not valid JSON: an object expected at byte 0"},
		"two values":             {`{` + hi + `} {}`, "", "not valid JSON: the end expected at byte 46"},
		"no messages":            {`{"model":"m"}`, "messages", "at least one message expected"},
		"null for messages":      {`{"messages":null}`, "messages", "at least one message expected"},
		"an empty list":          {`{"messages":[]}`, "messages", "at least one message expected"},
		"messages of text":       {`{"messages":"hi"}`, "messages", "not valid JSON: an array expected at byte 0"},
		"a message of text":      {`{"messages":["hi"]}`, "messages[0]", "an object expected, got a string"},
		"content of a number":    {`{"messages":[{"role":"user","content":"a"},{"role":"user","content":1}]}`, "messages[1].content", "a string or a list of parts expected, got a number"},
		"a message without role": {`{"messages":[{"content":"a"}]}`, "messages[0].role", "missing"},
		"more than one sample":   {`{` + hi + `,"n":2}`, "n", "is 2, must be 1: each call is one sample"},
		"no number of samples":   {`{` + hi + `,"n":"1"}`, "n", "an integer expected, got a string"},
		"a stream of text":       {`{` + hi + `,"stream":"yes"}`, "stream", "true or false expected, got a string"},
		"stream options":         {`{` + hi + `,"stream_options":{"include_usage":1}}`, "stream_options.include_usage", "true or false expected, got a number"},
		"a warm word":            {`{` + hi + `,"temperature":"hot"}`, "temperature", "a number expected, got a string"},
		"no tokens":              {`{` + hi + `,"max_tokens":0}`, "max_tokens", "is 0, must be at least 1"},
		"fewer than no tokens":   {`{` + hi + `,"max_completion_tokens":-1}`, "max_completion_tokens", "is -1, must be at least 1"},
		"half a token":           {`{` + hi + `,"max_tokens":0.5}`, "max_tokens", "an integer expected, got a number"},
		"half a seed":            {`{` + hi + `,"seed":0.5}`, "seed", "an integer expected, got a number"},
		"a stop that is none":    {`{` + hi + `,"stop":["a",1]}`, "stop[1]", "a string expected, got a number"},
		"tools of text":          {`{` + hi + `,"tools":"all"}`, "tools", "not valid JSON: an array expected at byte 0"},
		"too many alternatives":  {`{` + hi + `,"logprobs":true,"top_logprobs":21}`, "top_logprobs", "is 21, must be from 0 to 20"},
		"functions of old":       {`{` + hi + `,"functions":[{"name":"f"}]}`, "functions", "went out of use: declare tools, and choose with tool_choice"},
		"a choice of old":        {`{` + hi + `,"function_call":"auto"}`, "function_call", "went out of use: declare tools, and choose with tool_choice"},
		"a call of old":          {`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}]}`, "messages[1].function_call", "went out of use: send tool_calls"},
		"a model of a number":    {`{` + hi + `,"model":1}`, "model", "a string expected, got a number"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := chat.Protocol{}.Decode(nil, []byte(tc.body))
			protocoltest.BadRequest(t, err, tc.param, tc.message)
		})
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err        *llm.Error
		status     int
		body       string
		retryAfter string
	}{
		"a bad field": {
			&llm.Error{Kind: llm.BadRequest, Status: 400, Param: "n", Message: "is 2"}, 400,
			`{"error":{"message":"n: is 2","type":"invalid_request_error","param":"n","code":null}}`, "",
		},
		"an unknown key": {
			llm.Errorf(llm.UnknownKey, "no"), 401,
			`{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, "",
		},
		"an ended session": {
			llm.Errorf(llm.SessionEnded, "no"), 403,
			`{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"session_ended"}}`, "",
		},
		"a prompt too long": {
			llm.Errorf(llm.ContextOverflow, "long"), 400,
			`{"error":{"message":"long","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`, "",
		},
		"a body too large": {
			llm.Errorf(llm.TooLarge, "large"), 413,
			`{"error":{"message":"large","type":"invalid_request_error","param":null,"code":"request_too_large"}}`, "",
		},
		"a budget that is spent has no retry hint": {
			&llm.Error{Kind: llm.OverBudget, Status: 429, Message: "spent", RetryAfter: "1"}, 429,
			`{"error":{"message":"spent","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, "",
		},
		"a rate limit passes its hint on": {
			&llm.Error{Kind: llm.RateLimited, Status: 429, Message: "busy", RetryAfter: "7"}, 429,
			`{"error":{"message":"busy","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`, "7",
		},
		"a broken engine": {
			llm.Errorf(llm.EngineFailed, "broken"), 503,
			`{"error":{"message":"broken","type":"server_error","param":null,"code":"engine_failed"}}`, "1",
		},
		"a slow engine": {
			llm.Errorf(llm.EngineTimeout, "slow"), 504,
			`{"error":{"message":"slow","type":"server_error","param":null,"code":"engine_timeout"}}`, "",
		},
		"a full disk": {
			llm.Errorf(llm.StorageFailed, "full"), 503,
			`{"error":{"message":"full","type":"server_error","param":null,"code":"storage_failed"}}`, "",
		},
		"a fault of ours": {
			&llm.Error{Message: "oops"}, 500,
			`{"error":{"message":"oops","type":"server_error","param":null,"code":null}}`, "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			protocoltest.Fail(t, chat.Protocol{}, tc.err, tc.status, tc.retryAfter, tc.body)
		})
	}
}

func TestAnErrorThatIsNotForTheHarnessIsNotShown(t *testing.T) {
	t.Parallel()
	protocoltest.HidesErrors(t, chat.Protocol{}, 200)
}

func TestModels(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	chat.Protocol{}.Models(rec, []string{"a", `b"`})
	want := `{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"polar"},{"id":"b\"","object":"model","created":0,"owned_by":"polar"}]}`
	if diff := cmp.Diff(want, rec.Body.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAnAnswerHasAnIDWithoutACall(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for range 2 {
		text := reply(t, llm.Request{Model: "m"}, []byte(`{"finish":"stop"}`))
		_, rest, _ := strings.Cut(text, `"id":"chatcmpl-`)
		id, _, _ := strings.Cut(rest, `"`)
		ids[id] = len(id) == 24
	}
	if len(ids) != 2 || slices.Contains(slices.Collect(maps.Values(ids)), false) {
		t.Errorf("ids %v", ids)
	}
}

// TestCaptures reads what real harnesses sent, long texts cut short, and checks
// that a turn begins with all of the turn before it.
func TestCaptures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/captures/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	read := map[string]llm.Request{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var capture struct {
			Body json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(data, &capture); err != nil {
			t.Fatal(err)
		}
		req, err := chat.Protocol{}.Decode(nil, capture.Body)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !req.Stream || req.Sampling.MaxTokens == nil || len(req.Extra) > 0 {
			t.Errorf("%s: %s", file, protocoltest.Dump(req))
		}
		read[filepath.Base(file)] = req
	}
	for first, second := range map[string]string{
		"opencode-2.json":         "opencode-3.json",
		"pi-1.json":               "pi-2.json",
		"qwen-code-1.json":        "qwen-code-2.json",
		"qwen-code-latest-1.json": "qwen-code-latest-2.json",
	} {
		a, b := read[first], read[second]
		var before, after []string
		for _, m := range a.Messages {
			before = append(before, string(m.JSON("reasoning")))
		}
		for _, m := range b.Messages {
			after = append(after, string(m.JSON("reasoning")))
		}
		if len(before) == 0 || len(after) <= len(before) {
			t.Fatalf("%s has %d messages, %s %d", first, len(before), second, len(after))
		}
		if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
			t.Errorf("%s does not go on from %s\n%s", second, first, diff)
		}
		if diff := cmp.Diff(a.Tools, b.Tools); diff != "" {
			t.Errorf("the tools of %s are not those of %s\n%s", second, first, diff)
		}
	}
}

// FuzzDecode checks that whatever is accepted can be written out again, and
// that no error lacks what a harness needs of it.
func FuzzDecode(f *testing.F) {
	for _, file := range protocoltest.Files(f) {
		f.Add(file.Request())
	}
	f.Add([]byte(`{"messages":[{"role":"user","content":[]}],"stop":[],"stream_options":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := chat.Protocol{}.Decode(nil, body)
		protocoltest.Decoded(t, req, err, 400)
	})
}

func TestAnAnswerHasTheIDOfItsRequest(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"in one piece": false, "as a stream": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			err := chat.Protocol{}.Reply(w, llm.Request{ID: "call-000003", Stream: stream}, func(yield func(llm.Event, error) bool) {
				yield(llm.Event{}, llm.Errorf(llm.EngineFailed, "broken"))
			})
			if got := w.Header().Get("X-Request-Id"); err == nil || got != "req_call-000003" {
				t.Errorf("error %v, id %q", err, got)
			}
		})
	}
}
