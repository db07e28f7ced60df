package gemini_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/llm"
	"polar/protocol/gemini"
	"polar/protocol/protocoltest"
)

const generate = "/v1beta/models/m:generateContent"

func TestBadRequestsNameTheField(t *testing.T) {
	t.Parallel()
	const hi = `"contents":[{"parts":[{"text":"hi"}]}]`
	tests := map[string]struct{ body, param, message string }{
		"not JSON":                         {`{"contents":`, "", "not valid JSON: a value expected at byte 12"},
		"nothing":                          {``, "", "not valid JSON: a value expected at byte 0"},
		"not an object":                    {`[]`, "", "an object expected, got an array"},
		"no contents":                      {`{}`, "contents", "at least one content expected"},
		"an empty list":                    {`{"contents":[]}`, "contents", "at least one content expected"},
		"contents of numbers":              {`{"contents":[1]}`, "contents[0]", "an object expected, got a number"},
		"a role nobody has":                {`{"contents":[{"role":"assistant","parts":[]}]}`, "contents[0].role", `is "assistant", must be one of user, model, function`},
		"a part that is a number":          {`{"contents":[{"parts":[1]}]}`, "contents[0].parts[0]", "an object expected, got a number"},
		"a text that is a number":          {`{"contents":[{"parts":[{"text":1}]}]}`, "contents[0].parts[0].text", "a string expected, got a number"},
		"a part of an unknown kind":        {`{"contents":[{"parts":[{"text":"a"},{"executable_code":{}}]}]}`, "contents[0].parts[1].executableCode", "a part of this kind cannot be passed on"},
		"a call by the user":               {`{"contents":[{"parts":[{"functionCall":{"name":"f"}}]}]}`, "contents[0].parts[0]", "a functionCall is the model's alone"},
		"a result of the model's":          {`{"contents":[{"role":"model","parts":[{"functionResponse":{"name":"f"}}]}]}`, "contents[0].parts[0]", "a functionResponse is not the model's to give"},
		"a call without a name":            {`{"contents":[{"role":"model","parts":[{"functionCall":{}}]}]}`, "contents[0].parts[0].functionCall.name", "missing"},
		"arguments that are no object":     {`{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":"{}"}}]}]}`, "contents[0].parts[0].functionCall.args", "an object expected, got a string"},
		"a kind of data no engine takes":   {`{"contents":[{"parts":[{"inlineData":{"mimeType":"application/pdf","data":"aGk="}}]}]}`, "contents[0].parts[0].inlineData.mimeType", "Unsupported MIME type: application/pdf"},
		"data that is none":                {`{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"a b"}}]}]}`, "contents[0].parts[0].inlineData.data", "base64 expected"},
		"a file that is nowhere":           {`{"contents":[{"parts":[{"fileData":{"mimeType":"image/png"}}]}]}`, "contents[0].parts[0].fileData.fileUri", "missing"},
		"a function as system":             {`{` + hi + `,"systemInstruction":{"parts":[{"functionResponse":{}}]}}`, "systemInstruction.parts[0]", "a function has no place here"},
		"more than one sample":             {`{` + hi + `,"generationConfig":{"candidateCount":2}}`, "generationConfig.candidateCount", "is 2, must be 1: each call is one sample"},
		"a warm word":                      {`{` + hi + `,"generationConfig":{"temperature":"hot"}}`, "generationConfig.temperature", "a number expected, got a string"},
		"no tokens":                        {`{` + hi + `,"generation_config":{"max_output_tokens":0}}`, "generation_config.max_output_tokens", "is 0, must be at least 1"},
		"half a token":                     {`{` + hi + `,"generationConfig":{"maxOutputTokens":0.5}}`, "generationConfig.maxOutputTokens", "an integer expected, got a number"},
		"too many alternatives":            {`{` + hi + `,"generationConfig":{"logprobs":21}}`, "generationConfig.logprobs", "is 21, must be from 0 to 20"},
		"a stop that is none":              {`{` + hi + `,"generationConfig":{"stopSequences":["a",1]}}`, "generationConfig.stopSequences[1]", "a string expected, got a number"},
		"an answer that is a picture":      {`{` + hi + `,"generationConfig":{"responseModalities":["IMAGE"]}}`, "generationConfig.responseModalities", "an answer here is TEXT"},
		"an answer that is a word":         {`{` + hi + `,"generationConfig":{"responseMimeType":"text/x.enum"}}`, "generationConfig.responseMimeType", `is "text/x.enum", must be one of text/plain, application/json`},
		"a tool of Google's":               {`{` + hi + `,"tools":[{"functionDeclarations":[]},{"google_search":{}}]}`, "tools[1].google_search", "the tool googleSearch runs at Google and is not to be had here"},
		"a function without a name":        {`{` + hi + `,"tools":[{"functionDeclarations":[{}]}]}`, "tools[0].functionDeclarations[0].name", "missing"},
		"a mode that is none":              {`{` + hi + `,"toolConfig":{"functionCallingConfig":{"mode":"SOME"}}}`, "toolConfig.functionCallingConfig.mode", `is "SOME", must be one of AUTO, ANY, NONE, VALIDATED`},
		"a choice of what there is not":    {`{` + hi + `,"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}}`, "toolConfig.functionCallingConfig.allowedFunctionNames[0]", `no function "f" is declared`},
		"contents that were left there":    {`{` + hi + `,"cachedContent":"cachedContents/x"}`, "cachedContent", "nothing is cached here: send the contents themselves"},
		"a request to count within a call": {`{"generateContentRequest":{` + hi + `}}`, "generateContentRequest", "is for countTokens"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decode(generate, []byte(tc.body))
			protocoltest.BadRequest(t, err, tc.param, tc.message)
		})
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		url, model, refused string
		stream, count       bool
	}{
		"generate":                  {url: generate, model: "m"},
		"count":                     {url: "/v1beta/models/m:countTokens", model: "m", count: true},
		"stream":                    {url: "/v1/models/a/b:c:streamGenerateContent?alt=sse&key=k", model: "a/b:c", stream: true},
		"the name with its folder":  {url: "/v1beta/models/models/m:generateContent", model: "m"},
		"an escaped slash":          {url: "/v1beta/models/a%2Fb:generateContent", model: "a/b"},
		"a publisher's model":       {url: "/v1beta1/publishers/google/models/m:generateContent", model: "m"},
		"what models here cannot":   {url: "/v1beta/models/m:embedContent", refused: "models/m cannot embedContent here: it can generateContent, streamGenerateContent and countTokens"},
		"nothing that is wanted":    {url: "/v1beta/models/m", refused: "models/m is no call: models/NAME:generateContent is one"},
		"a call of no model at all": {url: "/v1beta/models/:generateContent", refused: "models/:generateContent is no call: models/NAME:generateContent is one"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux, reached := http.NewServeMux(), false
			for _, route := range (gemini.Protocol{}).Routes() {
				mux.HandleFunc(route, func(_ http.ResponseWriter, r *http.Request) {
					reached = true
					req, err := gemini.Protocol{}.Decode(r, []byte(`{"contents":"hi"}`))
					if refused, ok := errors.AsType[*llm.Error](err); ok {
						if refused.Message != tc.refused || refused.Status != 404 || refused.Kind != llm.NotFound {
							t.Errorf("refused: %+v", refused)
						}
						return
					}
					if err != nil || tc.refused != "" || req.Model != tc.model || req.Stream != tc.stream || req.CountOnly != tc.count {
						t.Errorf("got %+v, %v", req, err)
					}
				})
			}
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", tc.url, nil))
			if !reached {
				t.Error("no route")
			}
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
			&llm.Error{Kind: llm.BadRequest, Status: 400, Param: "contents", Message: "missing"}, 400,
			`{"error":{"code":400,"message":"contents: missing","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"contents","description":"missing"}]}]}}`, "",
		},
		"an unknown key":   {llm.Errorf(llm.UnknownKey, "no"), 401, `{"error":{"code":401,"message":"no","status":"UNAUTHENTICATED"}}`, ""},
		"an ended session": {llm.Errorf(llm.SessionEnded, "no"), 403, `{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}`, ""},
		"no such call":     {llm.Errorf(llm.NotFound, "no"), 404, `{"error":{"code":404,"message":"no","status":"NOT_FOUND"}}`, ""},
		"a body too large": {llm.Errorf(llm.TooLarge, "large"), 413, `{"error":{"code":413,"message":"large","status":"INVALID_ARGUMENT"}}`, ""},
		"a prompt too long for vLLM": {
			llm.Errorf(llm.ContextOverflow, "This model's maximum context length is 8192 tokens. However, you requested 9100 tokens (9000 in the messages, 100 in the completion)."), 400,
			`{"error":{"code":400,"message":"The input token count (9000) exceeds the maximum number of tokens allowed (8192).","status":"INVALID_ARGUMENT"}}`, "",
		},
		"a prompt too long for a newer vLLM": {
			llm.Errorf(llm.ContextOverflow, "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens. Please reduce the length of the input messages."), 400,
			`{"error":{"code":400,"message":"The input token count (9000) exceeds the maximum number of tokens allowed (8192).","status":"INVALID_ARGUMENT"}}`, "",
		},
		"a prompt too long for SGLang": {
			llm.Errorf(llm.ContextOverflow, "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9100 tokens."), 400,
			`{"error":{"code":400,"message":"The input token count (9100) exceeds the maximum number of tokens allowed (8192).","status":"INVALID_ARGUMENT"}}`, "",
		},
		"a prompt too long by nobody knows what": {
			llm.Errorf(llm.ContextOverflow, "context_length_exceeded"), 400,
			`{"error":{"code":400,"message":"The input token count exceeds the maximum number of tokens allowed: context_length_exceeded","status":"INVALID_ARGUMENT"}}`, "",
		},
		"a budget that is spent has no retry hint": {
			&llm.Error{Kind: llm.OverBudget, Status: 429, Message: "spent", RetryAfter: "1"}, 429,
			`{"error":{"code":429,"message":"spent","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"SessionBudgetPerDay","description":"spent"}]}]}}`, "",
		},
		"a rate limit passes its hint on": {
			&llm.Error{Kind: llm.RateLimited, Status: 429, Message: "busy", RetryAfter: "7"}, 429,
			`{"error":{"code":429,"message":"busy","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}`, "7",
		},
		"a rate limit without a hint": {llm.Errorf(llm.RateLimited, "busy"), 429, `{"error":{"code":429,"message":"busy","status":"RESOURCE_EXHAUSTED"}}`, ""},
		"a broken engine":             {llm.Errorf(llm.EngineFailed, "broken"), 503, `{"error":{"code":503,"message":"broken","status":"UNAVAILABLE"}}`, ""},
		"a slow engine":               {llm.Errorf(llm.EngineTimeout, "slow"), 504, `{"error":{"code":504,"message":"slow","status":"DEADLINE_EXCEEDED"}}`, ""},
		"a full disk":                 {llm.Errorf(llm.StorageFailed, "full"), 503, `{"error":{"code":503,"message":"full","status":"UNAVAILABLE"}}`, ""},
		"a fault of ours":             {&llm.Error{Message: "oops"}, 500, `{"error":{"code":500,"message":"oops","status":"INTERNAL"}}`, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			protocoltest.Fail(t, gemini.Protocol{}, tc.err, tc.status, tc.retryAfter, tc.body)
		})
	}
}

func TestAnErrorThatIsNotForTheHarnessIsNotShown(t *testing.T) {
	t.Parallel()
	protocoltest.HidesErrors(t, gemini.Protocol{}, 200)
}

func TestModelsAndCount(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	gemini.Protocol{}.Models(rec, []string{"a", `b"`})
	want := `{"models":[{"name":"models/a","displayName":"a","supportedGenerationMethods":["generateContent","countTokens"]},{"name":"models/b\"","displayName":"b\"","supportedGenerationMethods":["generateContent","countTokens"]}]}`
	if diff := cmp.Diff(want, rec.Body.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	rec = httptest.NewRecorder()
	gemini.Protocol{}.Count(rec, llm.Request{}, 31)
	if rec.Body.String() != `{"totalTokens":31}` || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", rec.Body, rec.Header())
	}
}

type capture struct {
	URL  string          `json:"url"`
	Body json.RawMessage `json:"body"`
}

func readCapture(t *testing.T, name string) llm.Request {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/captures", name))
	if err != nil {
		t.Fatal(err)
	}
	var c capture
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	req, err := decode(c.URL, c.Body)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return req
}

// TestCaptures reads what real harnesses sent, long texts cut short.
func TestCaptures(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		model           string
		stream          bool
		messages, tools int
	}{
		"gemini-cli-1-router.json":   {"gemini-3.5-flash-lite", false, 3, 0},
		"gemini-cli-2.json":          {"gemini-3.8-flash", true, 2, 3},
		"gemini-cli-3.json":          {"gemini-3.8-flash", true, 4, 3},
		"gemini-cli-4-subagent.json": {"gemini-3.8-flash", true, 2, 3},
		"pi-7-google.json":           {"mock-model", true, 4, 3},
	}
	for name, tc := range tests {
		req := readCapture(t, name)
		if req.Model != tc.model || req.Stream != tc.stream || len(req.Messages) != tc.messages || len(req.Tools) != tc.tools {
			t.Errorf("%s: %s", name, protocoltest.Dump(req))
		}
	}
	if first, second := readCapture(t, "gemini-cli-2.json"), readCapture(t, "gemini-cli-3.json"); !extends(first, second) {
		t.Errorf("the second turn does not go on from the first\n%s\n%s", protocoltest.Dump(first), protocoltest.Dump(second))
	}
}

// extends reports whether a prompt is the beginning of another.
func extends(first, second llm.Request) bool {
	a, b := promptLines(first), promptLines(second)
	return len(a) < len(b) && cmp.Equal(a, b[:len(a)]) && cmp.Equal(first.Tools, second.Tools)
}

func promptLines(req llm.Request) []string {
	var lines []string
	for _, m := range req.Messages {
		lines = append(lines, string(m.AppendJSON(nil, "reasoning")))
	}
	return lines
}

type response struct {
	Candidates []struct {
		Content      json.RawMessage `json:"content"`
		FinishReason string          `json:"finishReason"`
	} `json:"candidates"`
	Usage json.RawMessage `json:"usageMetadata"`
}

// TestStreamedIsUnstreamed sends the answers of all golden files back as
// history, in each form: the model reads the same.
func TestStreamedIsUnstreamed(t *testing.T) {
	t.Parallel()
	answers := 0
	for _, file := range protocoltest.Files(t) {
		section := func(name string) string { return string(file.Section(name)) }
		_, plain, _ := strings.Cut(section("plain.json"), "\n")
		if plain == "" || !strings.HasPrefix(section("plain.json"), "200 ") {
			continue
		}
		answers++
		_, array, _ := strings.Cut(section("array.json"), "\n")
		_, events, _ := strings.Cut(section("stream.sse"), "\n")
		chunks := strings.Split(events, "data: ")[1:]
		want := readBack(t, "["+plain+"]")
		for form, text := range map[string]string{"array": array, "events": "[" + strings.Join(chunks, ",") + "]"} {
			if diff := cmp.Diff(want, readBack(t, text)); diff != "" {
				t.Errorf("%s, %s (-plain +streamed)\n%s", file.Path, form, diff)
			}
		}
	}
	if answers < 5 {
		t.Errorf("only %d answers", answers)
	}
}

// readBack is what a harness knows after an answer: its content as a prompt has
// it, why it ended and what it cost.
func readBack(t *testing.T, chunks string) []string {
	t.Helper()
	var responses []response
	if err := json.Unmarshal([]byte(chunks), &responses); err != nil {
		t.Fatalf("%v in %s", err, chunks)
	}
	var contents []string
	for _, r := range responses {
		contents = append(contents, string(r.Candidates[0].Content))
	}
	req, err := decode(generate, []byte(`{"contents":[`+strings.Join(contents, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	last := responses[len(responses)-1]
	return append(promptLines(req), last.Candidates[0].FinishReason, string(last.Usage))
}

// TestAnAnswerComesBackAsItWasSaid sends an answer through a harness that drops
// thoughts: the prompt has all that the engine said.
func TestAnAnswerComesBackAsItWasSaid(t *testing.T) {
	t.Parallel()
	events := []byte(`{"prompt_ids":[1],"reasoning":"why\u003f \u00e9"}
{"text":"so"}
{"tool_calls":[{"Index":0,"ID":"call_9","Name":"f","Arguments":"{\"b\": 1.0, \"a\": \"<\"}"}]}
{"finish":"tool_calls"}
`)
	want, err := llm.Collect(protocoltest.Play(t, events))
	if err != nil {
		t.Fatal(err)
	}
	req, err := decode("/v1beta/models/m:streamGenerateContent?alt=sse", []byte(`{"contents":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(reply(t, req, events), "\n")
	var contents []string
	for chunk := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
		var r response
		if err := json.Unmarshal([]byte(strings.TrimPrefix(chunk, "data: ")), &r); err != nil {
			t.Fatal(err)
		}
		contents = append(contents, string(r.Candidates[0].Content))
	}
	back, err := decode(generate, []byte(`{"contents":["hi",`+strings.Join(contents, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want.Message.AppendJSON(nil, "reasoning")), promptLines(back)[1]); diff != "" {
		t.Errorf("(-said +came back)\n%s", diff)
	}
}

// TestSignOfLifeWhileACallIsWritten: the engine is not silent while it writes
// the arguments of a call, and the harness sees nothing of them yet.
func TestSignOfLifeWhileACallIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		req, err := decode("/v1beta/models/m:streamGenerateContent?alt=sse", []byte(`{"contents":"hi"}`))
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		var seen []int
		err = gemini.Protocol{}.Reply(rec, req, func(yield func(llm.Event, error) bool) {
			for range 10 {
				<-time.After(2 * time.Second)
				if !yield(llm.Event{ToolCalls: []llm.ToolCallDelta{{Name: "f"}}}, nil) {
					return
				}
				seen = append(seen, rec.Body.Len())
			}
			yield(llm.Event{Finish: llm.FinishToolCalls}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		// Two line ends after 6 seconds, and every 6 again.
		if diff := cmp.Diff([]int{0, 0, 2, 2, 2, 4, 4, 4, 6, 6}, seen); diff != "" {
			t.Errorf("bytes after each event (-want +got)\n%s", diff)
		}
	})
}

// FuzzDecode checks that whatever is accepted can be written out again, and
// that no error lacks what a harness needs of it.
func FuzzDecode(f *testing.F) {
	for _, file := range protocoltest.Files(f) {
		f.Add(file.Title(), file.Request())
	}
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		r := httptest.NewRequest("POST", generate, nil)
		r.URL.Path, _, _ = strings.Cut(path, "?")
		before := string(body)
		req, err := gemini.Protocol{}.Decode(r, body)
		if string(body) != before {
			t.Error("the body was changed")
		}
		if !protocoltest.Decoded(t, req, err, 400, 404) {
			return
		}
		for _, m := range req.Messages {
			if m.Role == "tool" && m.ToolCallID == "" {
				t.Error("a result of no call")
			}
		}
	})
}
