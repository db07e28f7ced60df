package anthropic_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/llm"
	"polar/protocol/anthropic"
	"polar/protocol/protocoltest"
	"polar/rawjson"
)

func TestBadRequestsNameTheField(t *testing.T) {
	t.Parallel()
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	content := func(blocks string) string { return `{"messages":[{"role":"user","content":` + blocks + `}]}` }
	said := func(blocks string) string { return `{"messages":[{"role":"assistant","content":` + blocks + `}]}` }
	tools := func(list string) string { return `{` + hi + `,"tools":` + list + `}` }
	const provider = " is a tool that only the provider's own servers and models know: leave it out, or send a tool with a name and an input_schema"
	tests := map[string]struct{ body, param, message string }{
		"not JSON":                   {`{"model":`, "", "not valid JSON: a value expected at byte 9"},
		"not an object":              {`[]`, "", "not valid JSON: an object expected at byte 0"},
		"no messages":                {`{"model":"m"}`, "messages", "at least one message expected"},
		"null for messages":          {`{"messages":null}`, "messages", "at least one message expected"},
		"an empty list":              {`{"messages":[]}`, "messages", "at least one message expected"},
		"messages of text":           {`{"messages":"hi"}`, "messages", "a list expected, got a string"},
		"a message of text":          {`{"messages":["hi"]}`, "messages[0]", "an object expected, got a string"},
		"no role":                    {`{"messages":[{"content":"a"}]}`, "messages[0].role", "missing"},
		"another role":               {`{"messages":[{"role":"tool","content":"a"}]}`, "messages[0].role", `is "tool", must be user, assistant or system`},
		"no content":                 {`{"messages":[{"role":"user"}]}`, "messages[0].content", "missing"},
		"content of a number":        {content(`1`), "messages[0].content", "a string or a list of blocks expected, got a number"},
		"a block of text":            {content(`["a"]`), "messages[0].content[0]", "an object expected, got a string"},
		"a block of no type":         {content(`[{"text":"a"}]`), "messages[0].content[0].type", "missing"},
		"a block of another type":    {content(`[{"type":"text","text":"a"},{"type":"container_upload"}]`), "messages[0].content[1].type", `a block of type "container_upload" is not known here`},
		"a text without text":        {content(`[{"type":"text"}]`), "messages[0].content[0].text", "missing"},
		"an image without source":    {content(`[{"type":"image"}]`), "messages[0].content[0].source", "an object expected, got nothing"},
		"an image from a file":       {content(`[{"type":"image","source":{"type":"file","file_id":"x"}}]`), "messages[0].content[0].source.type", `is "file", must be base64 or url`},
		"an image without data":      {content(`[{"type":"image","source":{"type":"base64","media_type":"image/png"}}]`), "messages[0].content[0].source.data", "missing"},
		"a result of nothing":        {content(`[{"type":"tool_result","content":"a"}]`), "messages[0].content[0].tool_use_id", "missing"},
		"a block in a result":        {content(`[{"type":"tool_result","tool_use_id":"1","content":[{"type":"x"}]}]`), "messages[0].content[0].content[0].type", `a block of type "x" is not known here`},
		"a document from nowhere":    {content(`[{"type":"document","source":{"type":"file"}}]`), "messages[0].content[0].source.type", `is "file", must be text, content, base64 or url`},
		"a tool of the server used":  {said(`[{"type":"server_tool_use","id":"1"}]`), "messages[0].content[0].type", `a block of type "server_tool_use" is not known here`},
		"a call without a name":      {said(`[{"type":"tool_use","id":"1","input":{}}]`), "messages[0].content[0].name", "missing"},
		"a call with a text":         {said(`[{"type":"tool_use","id":"1","name":"f","input":"{}"}]`), "messages[0].content[0].input", "an object expected, got a string"},
		"a system of numbers":        {`{"system":[1],` + hi + `}`, "system[0]", "an object expected, got a number"},
		"web search":                 {tools(`[{"name":"f","input_schema":{}},{"type":"web_search_20250305","name":"web_search"}]`), "tools[1].type", `"web_search_20250305"` + provider},
		"code execution":             {tools(`[{"type":"code_execution_20250825","name":"code_execution"}]`), "tools[0].type", `"code_execution_20250825"` + provider},
		"bash":                       {tools(`[{"type":"bash_20250124","name":"bash"}]`), "tools[0].type", `"bash_20250124"` + provider},
		"a text editor":              {tools(`[{"type":"text_editor_20250728","name":"str_replace_based_edit_tool"}]`), "tools[0].type", `"text_editor_20250728"` + provider},
		"a computer":                 {tools(`[{"type":"computer_20250124","name":"computer"}]`), "tools[0].type", `"computer_20250124"` + provider},
		"a tool without a schema":    {tools(`[{"name":"f"}]`), "tools[0].input_schema", "missing"},
		"a tool without a name":      {tools(`[{"input_schema":{}}]`), "tools[0].name", "missing"},
		"a schema of text":           {tools(`[{"name":"f","input_schema":"{}"}]`), "tools[0].input_schema", "an object expected, got a string"},
		"tools of text":              {tools(`"all"`), "tools", "a list expected, got a string"},
		"a choice of another type":   {`{` + hi + `,"tool_choice":{"type":"some"}}`, "tool_choice.type", `is "some", must be auto, any, none or tool`},
		"a choice of no tool":        {`{` + hi + `,"tool_choice":{"type":"tool"}}`, "tool_choice.name", "missing"},
		"a choice that is not there": {`{` + hi + `,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"}}`, "tool_choice.name", "no tool has this name"},
		"servers of tools":           {`{` + hi + `,"mcp_servers":[{"type":"url"}]}`, "mcp_servers", "there is no server here that could call others: connect the harness to them and send their tools"},
		"a stream of text":           {`{` + hi + `,"stream":"yes"}`, "stream", "true or false expected, got a string"},
		"no tokens":                  {`{` + hi + `,"max_tokens":0}`, "max_tokens", "is 0, must be at least 1"},
		"a warm word":                {`{` + hi + `,"temperature":"hot"}`, "temperature", "a number expected, got a string"},
		"a stop that is none":        {`{` + hi + `,"stop_sequences":["a",1]}`, "stop_sequences[1]", "a string expected, got a number"},
		"half a seed":                {`{` + hi + `,"seed":0.5}`, "seed", "an integer expected, got a number"},
		"thinking of text":           {`{` + hi + `,"thinking":"hard"}`, "thinking", "an object expected, got a string"},
		"another format":             {`{` + hi + `,"output_config":{"format":{"type":"xml"}}}`, "output_config.format.type", `is "xml", must be "json_schema"`},
		"a format without a schema":  {`{` + hi + `,"output_format":{"type":"json_schema"}}`, "output_format.schema", "an object expected, got nothing"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := anthropic.Protocol{}.Decode(nil, []byte(tc.body))
			protocoltest.BadRequest(t, err, tc.param, tc.message)
		})
	}
}

func TestToolChoice(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ tools, choice, want, parallel string }{
		"auto":                      {`[{"name":"f","input_schema":{}}]`, `{"type":"auto"}`, `"auto"`, ""},
		"any":                       {`[{"name":"f","input_schema":{}}]`, `{"type":"any","disable_parallel_tool_use":true}`, `"required"`, "false"},
		"none":                      {`[{"name":"f","input_schema":{}}]`, `{"type":"none"}`, `"none"`, ""},
		"one":                       {`[{"name":"f","input_schema":{}}]`, `{"type":"tool","name":"f","disable_parallel_tool_use":false}`, `{"type":"function","function":{"name":"f"}}`, ""},
		"none said":                 {`[{"name":"f","input_schema":{}}]`, `null`, "", ""},
		"among no tools":            {`[]`, `{"type":"any","disable_parallel_tool_use":true}`, "", ""},
		"a typed tool with schema":  {`[{"type":"bash_20250124","name":"bash","input_schema":{}}]`, `{"type":"auto"}`, `"auto"`, ""},
		"tools that are all hidden": {`[{"name":"f","input_schema":{},"defer_loading":true}]`, `{"type":"auto"}`, `"auto"`, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := anthropic.Protocol{}.Decode(nil, []byte(`{"messages":[{"role":"user","content":"a"}],"tools":`+tc.tools+`,"tool_choice":`+tc.choice+`}`))
			if err != nil {
				t.Fatal(err)
			}
			if string(req.ToolChoice) != tc.want || string(req.ParallelToolCalls) != tc.parallel {
				t.Errorf("choice %s, parallel %s", req.ToolChoice, req.ParallelToolCalls)
			}
			if got, want := len(req.Tools), strings.Count(tc.tools, "{}"); got != want {
				t.Errorf("%d tools, want %d", got, want)
			}
		})
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err           *llm.Error
		status        int
		typ, message  string
		retry, should string
	}{
		"a bad field":        {&llm.Error{Kind: llm.BadRequest, Status: 400, Param: "n", Message: "is 2"}, 400, "invalid_request_error", "n: is 2", "", ""},
		"an unknown key":     {llm.Errorf(llm.UnknownKey, "no"), 401, "authentication_error", "no", "", ""},
		"an ended session":   {llm.Errorf(llm.SessionEnded, "no"), 403, "permission_error", "no", "", ""},
		"nothing there":      {llm.Errorf(llm.NotFound, "no"), 404, "not_found_error", "no", "", ""},
		"a body too large":   {llm.Errorf(llm.TooLarge, "large"), 413, "request_too_large", "large", "", ""},
		"a spent budget":     {&llm.Error{Kind: llm.OverBudget, Status: 429, Message: "spent", RetryAfter: "1"}, 429, "rate_limit_error", "spent", "", "false"},
		"a rate limit":       {&llm.Error{Kind: llm.RateLimited, Status: 429, Message: "busy", RetryAfter: "7"}, 429, "rate_limit_error", "busy", "7", ""},
		"a broken engine":    {llm.Errorf(llm.EngineFailed, "broken"), 503, "api_error", "broken", "", ""},
		"a slow engine":      {llm.Errorf(llm.EngineTimeout, "slow"), 504, "timeout_error", "slow", "", ""},
		"a full disk":        {llm.Errorf(llm.StorageFailed, "full"), 503, "api_error", "full", "", ""},
		"an engine overrun":  {&llm.Error{Kind: llm.EngineFailed, Status: 529, Message: "full"}, 529, "overloaded_error", "full", "", ""},
		"a fault of ours":    {&llm.Error{Message: "oops"}, 500, "api_error", "oops", "", ""},
		"a prompt of vLLM":   {overflow("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion)."), 400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 8000 + 1000 > 8192, decrease input length or `max_tokens` and try again", "", ""},
		"a prompt too long":  {overflow("This model's maximum context length is 8 tokens. However, your request has 9 input tokens."), 400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "", ""},
		"an answer too long": {overflow("'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 32768 tokens and your request has 1000 input tokens (64000 > 32768 - 1000)."), 400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 1000 + 64000 > 32768, decrease input length or `max_tokens` and try again", "", ""},
		"older words":        {overflow("The prompt (total length 9) is longer than the maximum model length of 8."), 400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "", ""},
		"oldest words":       {overflow("The decoder prompt (length 9) is longer than the maximum model length of 8."), 400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "", ""},
		"newer words":        {overflow("You passed 9 input tokens and requested 1 output tokens. However, the model's context length is only 8 tokens, resulting in a maximum input length of 7 tokens."), 400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "", ""},
		"a prompt of SGLang": {overflow("The input (9 tokens) is longer than the model's context length (8 tokens)."), 400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "", ""},
		"its whole request":  {overflow("Requested token count exceeds the model's maximum context length of 8 tokens. You requested a total of 11 tokens: 6 tokens from the input messages and 5 tokens for the completion."), 400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 6 + 5 > 8, decrease input length or `max_tokens` and try again", "", ""},
		"our own words":      {overflow("This session's maximum context length is 8 tokens. However, the messages resulted in 9 tokens."), 400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "", ""},
		"no numbers":         {overflow("context_length_exceeded"), 400, "invalid_request_error", "prompt is too long: context_length_exceeded", "", ""},
		"a limit alone":      {overflow("This model's maximum context length is 8 tokens."), 400, "invalid_request_error", "prompt is too long: This model's maximum context length is 8 tokens.", "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := `{"type":"error","error":{"type":"` + tc.typ + `","message":` + string(rawjson.Quote(tc.message)) + `},"request_id":null}`
			h := protocoltest.Fail(t, anthropic.Protocol{}, tc.err, tc.status, tc.retry, want)
			if h.Get("X-Should-Retry") != tc.should {
				t.Errorf("headers %v", h)
			}
		})
	}
}

func overflow(said string) *llm.Error { return llm.Errorf(llm.ContextOverflow, "%s", said) }

func TestAnErrorThatIsNotForTheHarnessIsNotShown(t *testing.T) {
	t.Parallel()
	protocoltest.HidesErrors(t, anthropic.Protocol{}, 500)
}

func TestAnAnswerThatIsNotWholeIsAnError(t *testing.T) {
	t.Parallel()
	call := func(index int, args string) llm.Event {
		return llm.Event{ToolCalls: []llm.ToolCallDelta{{Index: index, Name: "f", Arguments: args}}}
	}
	tests := map[string][]llm.Event{
		"no end":                      {{Text: "a"}},
		"nothing":                     {},
		"a call that is taken up":     {call(0, "{"), call(1, "{}"), call(0, "}"), {Finish: llm.FinishStop}},
		"a call with text in between": {call(0, "{"), {Text: "a"}, call(0, "}"), {Finish: llm.FinishStop}},
	}
	for name, events := range tests {
		for _, stream := range []bool{false, true} {
			rec := httptest.NewRecorder()
			err := anthropic.Protocol{}.Reply(rec, llm.Request{Stream: stream}, func(yield func(llm.Event, error) bool) {
				for _, e := range events {
					if !yield(e, nil) {
						return
					}
				}
			})
			var got *llm.Error
			if !errors.As(err, &got) || got.Kind != llm.EngineFailed {
				t.Errorf("%s, stream %v: %v", name, stream, err)
			}
			if body := rec.Body.String(); !strings.Contains(body, `"type":"api_error"`) || strings.Contains(body, "message_stop") {
				t.Errorf("%s, stream %v: %s", name, stream, body)
			}
		}
	}
}

// brokenPipe is a connection whose other end is gone.
type brokenPipe struct{ http.ResponseWriter }

var errGone = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errGone }

func TestAHarnessThatLeftIsNoticed(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		for _, events := range [][]llm.Event{{{Text: "a", Finish: llm.FinishStop}}, {{KeepAlive: true}, {Finish: llm.FinishStop}}, {{Text: "a"}, {Finish: llm.FinishStop}}} {
			err := anthropic.Protocol{}.Reply(brokenPipe{httptest.NewRecorder()}, llm.Request{Stream: stream}, func(yield func(llm.Event, error) bool) {
				for _, e := range events {
					if !yield(e, nil) {
						return
					}
				}
			})
			if !errors.Is(err, errGone) {
				t.Errorf("stream %v: %v", stream, err)
			}
		}
	}
}

// TestALongSilenceIsBroken has an engine at work on what the harness cannot see
// yet: a tool call that it still holds back, thinking that is not to be shown.
func TestALongSilenceIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, err := anthropic.Protocol{}.Decode(nil, []byte(`{"messages":[{"role":"user","content":"a"}],"stream":true,"thinking":{"type":"adaptive","display":"omitted"}}`))
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		err = anthropic.Protocol{}.Reply(rec, req, func(yield func(llm.Event, error) bool) {
			for i := range 12 {
				e := llm.Event{Reasoning: "hm"}
				if i > 6 {
					e = llm.Event{Tokens: []llm.Token{{ID: 1}}}
				}
				if !yield(e, nil) {
					return
				}
				<-time.After(2 * time.Second)
			}
			yield(llm.Event{Finish: llm.FinishStop}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		if pings := strings.Count(rec.Body.String(), "event: ping\n"); pings != 3 { // after 6, 12 and 18 s
			t.Errorf("%d pings:\n%s", pings, rec.Body)
		}
	})
}

func TestCount(t *testing.T) {
	t.Parallel()
	var p anthropic.Protocol
	req, err := p.DecodeCount(nil, []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[{"name":"f","input_schema":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`{"role":"user","content":"a"}`}, protocoltest.Messages(req)); diff != "" || len(req.Tools) != 1 {
		t.Errorf("%d tools, messages (-want +got)\n%s", len(req.Tools), diff)
	}
	rec := httptest.NewRecorder()
	p.Count(rec, req, 2095)
	if got := rec.Body.String(); got != `{"input_tokens":2095}` || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", got, rec.Header())
	}
}

func TestProbesAreAnswered(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for _, route := range (anthropic.Protocol{}).Routes() {
		mux.HandleFunc(route, func(http.ResponseWriter, *http.Request) { t.Error("a probe is no call") })
	}
	for pattern, handler := range (anthropic.Protocol{}).Asides() {
		mux.HandleFunc(pattern, handler)
	}
	for _, path := range []string{"/v1/messages", "/api/hello"} {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest("HEAD", path, nil))
		if rec.Code != 200 || rec.Body.Len() > 0 {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
}

// TestNothingAliasesTheBody lets the body of a call be let go of.
func TestNothingAliasesTheBody(t *testing.T) {
	t.Parallel()
	for _, file := range protocoltest.Files(t) {
		body := file.Request()
		req, err := anthropic.Protocol{}.Decode(nil, body)
		if err != nil {
			t.Fatal(err)
		}
		before := protocoltest.Dump(req)
		for i := range body {
			body[i] = 'x'
		}
		if diff := cmp.Diff(before, protocoltest.Dump(req)); diff != "" {
			t.Errorf("%s (-before +after)\n%s", file.Path, diff)
		}
	}
}

// FuzzDecode checks that whatever is accepted can be written out again, and
// that no error lacks what a harness needs of it.
func FuzzDecode(f *testing.F) {
	for _, file := range protocoltest.Files(f) {
		f.Add(file.Request())
	}
	f.Add([]byte(`{"messages":[{"role":"user","content":[]},{"role":"assistant","content":[]}],"stop_sequences":[],"system":[],"tools":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := anthropic.Protocol{}.Decode(nil, body)
		if protocoltest.Decoded(t, req, err, 400) && len(req.Messages) == 0 && !strings.Contains(string(body), "system") {
			t.Error("no message")
		}
	})
}
