package responses_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/llm"
	"polar/protocol/protocoltest"
	"polar/protocol/responses"
	"polar/rawjson"
)

func TestBadRequestsNameTheField(t *testing.T) {
	t.Parallel()
	const (
		hi   = `"input":"hi"`
		tool = `"tools":[{"type":"function","name":"f"}]`
	)
	item := func(s string) string { return `{"input":[{"role":"user","content":"a"},` + s + `]}` }
	tests := map[string]struct{ body, param, message string }{
		"not JSON":                    {`{"model":`, "", "not valid JSON: a value expected at byte 9"},
		"not an object":               {`[]`, "", "not valid JSON: an object expected at byte 0"},
		"no input":                    {`{"model":"m"}`, "input", "a string or at least one item expected"},
		"an empty list":               {`{"input":[]}`, "input", "a string or at least one item expected"},
		"input of a number":           {`{"input":1}`, "input", "a string or a list of items expected, got a number"},
		"an item of text":             {item(`"hi"`), "input[1]", "an object expected, got a string"},
		"an item of no known type":    {item(`{"type":"web_search_call"}`), "input[1].type", `"web_search_call" is not known; known are message, reasoning, function_call, custom_tool_call, local_shell_call, shell_call, apply_patch_call and tool_search_call, their outputs, and additional_tools`},
		"a type that is no text":      {item(`{"type":1}`), "input[1].type", "a string expected, got a number"},
		"a reference":                 {item(`{"type":"item_reference","id":"msg_1"}`), "input[1].type", `item_reference: items are not stored here; send the item itself, which clients do with "store": false, or go on from previous_response_id`},
		"no role":                     {item(`{"content":"a"}`), "input[1].role", "missing"},
		"a role that is none":         {item(`{"role":"tool","content":"a"}`), "input[1].role", `is "tool", must be user, assistant, system or developer`},
		"content of a number":         {item(`{"role":"user","content":1}`), "input[1].content", "a string or a list of parts expected, got a number"},
		"a part that is unknown":      {item(`{"role":"user","content":[{"type":"input_video"}]}`), "input[1].content[0].type", `"input_video" is not known; known are input_text, output_text, refusal, input_image and input_audio`},
		"a file":                      {item(`{"role":"user","content":[{"type":"input_file"}]}`), "input[1].content[0].type", `"input_file" cannot be read here; send its text as input_text`},
		"a stored image":              {item(`{"role":"user","content":[{"type":"input_image","file_id":"f"}]}`), "input[1].content[0].file_id", "files are not stored here; send the image as a data URL in image_url"},
		"an image without an address": {item(`{"role":"user","content":[{"type":"input_image"}]}`), "input[1].content[0].image_url", "missing"},
		"a text without text":         {item(`{"role":"user","content":[{"type":"input_text"}]}`), "input[1].content[0].text", "a string expected, got nothing"},
		"a model that shows images":   {item(`{"role":"assistant","content":[{"type":"input_image","image_url":"x"}]}`), "input[1].content[0].type", "the model says only text: output_text or refusal expected"},
		"a call without an id":        {item(`{"type":"function_call","name":"f","arguments":"{}"}`), "input[1].call_id", "missing"},
		"a call without a name":       {item(`{"type":"function_call","call_id":"c"}`), "input[1].name", "missing"},
		"a custom call without input": {item(`{"type":"custom_tool_call","name":"f","call_id":"c"}`), "input[1].input", "missing"},
		"a shell without an action":   {item(`{"type":"local_shell_call","call_id":"c"}`), "input[1].action", "missing"},
		"an output of nothing":        {item(`{"type":"function_call_output","call_id":"c"}`), "input[1].output", "missing"},
		"an output of no call":        {item(`{"type":"function_call_output","output":"a"}`), "input[1].call_id", "missing"},
		"tools in an item":            {item(`{"type":"additional_tools","tools":[{"name":"f"}]}`), "input[1].tools[0].type", "missing"},
		"tools of text":               {`{` + hi + `,"tools":"all"}`, "tools", "not valid JSON: an array expected at byte 0"},
		"a tool of text":              {`{` + hi + `,"tools":["all"]}`, "tools[0]", "an object expected, got a string"},
		"a tool without a name":       {`{` + hi + `,"tools":[{"type":"function"}]}`, "tools[0].name", "missing"},
		"a namespace without a name":  {`{` + hi + `,"tools":[{"type":"namespace","tools":[]}]}`, "tools[0].name", "missing"},
		"a namespace in a namespace":  {`{` + hi + `,"tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m"}]}]}`, "tools[0].tools[0].type", `a namespace within the namespace "n"`},
		"two tools with one name":     {`{` + hi + `,"tools":[{"type":"function","name":"n__f"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}`, "tools[1].tools[0].name", `is "n__f" to the model, which another tool is already`},
		"a choice of OpenAI's tools":  {`{` + hi + `,"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}}`, "tool_choice.type", `"web_search" is run by OpenAI and cannot be run here; choose a function`},
		"a choice of no tool":         {`{` + hi + `,` + tool + `,"tool_choice":{"type":"function","name":"g"}}`, "tool_choice", `no tool named "g" is given`},
		"a shell that is not there":   {`{` + hi + `,` + tool + `,"tool_choice":{"type":"local_shell"}}`, "tool_choice", `no tool named "local_shell" is given`},
		"a choice of a number":        {`{` + hi + `,"tool_choice":1}`, "tool_choice", "a string or an object expected, got a number"},
		"a choice that is no word":    {`{` + hi + `,` + tool + `,"tool_choice":"maybe"}`, "tool_choice", `is "maybe", must be auto, none, required or a tool`},
		"a demand for OpenAI's tools": {`{` + hi + `,"tools":[{"type":"web_search"},{"type":"mcp"}],"tool_choice":"required"}`, "tool_choice", "demands a tool, and none of those given can be run here: web_search, mcp"},
		"a demand for nothing":        {`{` + hi + `,"tool_choice":"required"}`, "tool_choice", "demands a tool, and none is given"},
		"in the background":           {`{` + hi + `,"background":true}`, "background", "answers are made while the caller waits; leave it out or send false"},
		"a conversation":              {`{` + hi + `,"conversation":"conv_1"}`, "conversation", "conversations are not stored; send the items in input, or previous_response_id"},
		"a stored prompt":             {`{` + hi + `,"prompt":{"id":"p"}}`, "prompt", "prompt templates are not stored; send the text in instructions and input"},
		"an id of something else":     {`{` + hi + `,"previous_response_id":"chatcmpl-1"}`, "previous_response_id", `"chatcmpl-1" is no id of a response`},
		"no tokens":                   {`{` + hi + `,"max_output_tokens":0}`, "max_output_tokens", "is 0, must be at least 1"},
		"too many alternatives":       {`{` + hi + `,"top_logprobs":21}`, "top_logprobs", "is 21, must be from 0 to 20"},
		"a format without a type":     {`{` + hi + `,"text":{"format":{}}}`, "text.format.type", "a string expected, got nothing"},
		"an effort of a number":       {`{` + hi + `,"reasoning":{"effort":1}}`, "reasoning.effort", "a string expected, got a number"},
		"a wish of a number":          {`{` + hi + `,"include":[1]}`, "include[0]", "a string expected, got a number"},
		"a warm word":                 {`{` + hi + `,"temperature":"hot"}`, "temperature", "a number expected, got a string"},
		"a stream of text":            {`{` + hi + `,"stream":"yes"}`, "stream", "true or false expected, got a string"},
		"a model of a number":         {`{` + hi + `,"model":1}`, "model", "a string expected, got a number"},
		"instructions of a number":    {`{` + hi + `,"instructions":1}`, "instructions", "a string or a list of parts expected, got a number"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := responses.Protocol{}.Decode(nil, []byte(tc.body))
			protocoltest.BadRequest(t, err, tc.param, tc.message)
		})
	}
}

func TestToolChoice(t *testing.T) {
	t.Parallel()
	const tools = `"tools":[{"type":"function","name":"f"},{"type":"custom","name":"x"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"g"}]},{"type":"web_search"}]`
	tests := map[string]struct {
		choice, want string
		tools        int
	}{
		"a mode":                    {`"required"`, `"required"`, 3},
		"a function":                {`{"type":"function","name":"f"}`, `{"type":"function","function":{"name":"f"}}`, 3},
		"a custom tool":             {`{"type":"custom","name":"x"}`, `{"type":"function","function":{"name":"x"}}`, 3},
		"a tool in a namespace":     {`{"type":"function","name":"g","namespace":"n"}`, `{"type":"function","function":{"name":"n__g"}}`, 3},
		"as Chat has it":            {`{"type":"function","function":{"name":"f"}}`, `{"type":"function","function":{"name":"f"}}`, 3},
		"some of the tools":         {`{"type":"allowed_tools","mode":"required","tools":[{"type":"custom","name":"x"}]}`, `"required"`, 1},
		"none of the tools":         {`{"type":"allowed_tools","mode":"auto","tools":[]}`, ``, 0},
		"some of them, as Chat has": {`{"type":"allowed_tools","allowed_tools":{"tools":[{"type":"function","function":{"name":"f"}}]}}`, `"auto"`, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := responses.Protocol{}.Decode(nil, []byte(`{"input":"hi",`+tools+`,"tool_choice":`+tc.choice+`}`))
			if err != nil {
				t.Fatal(err)
			}
			if string(req.ToolChoice) != tc.want || len(req.Tools) != tc.tools {
				t.Errorf("choice %s among %d tools, want %s among %d", req.ToolChoice, len(req.Tools), tc.want, tc.tools)
			}
		})
	}
}

func captures(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/captures/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	out := map[string][]byte{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = data
	}
	return out
}

func messages(t *testing.T, body []byte) []string {
	t.Helper()
	req, err := responses.Protocol{}.Decode(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	return protocoltest.Messages(req)
}

func isPrefix(t *testing.T, what string, shorter, longer []string) {
	t.Helper()
	if len(shorter) > len(longer) {
		t.Errorf("%s: %d messages before, %d after", what, len(shorter), len(longer))
		return
	}
	if diff := cmp.Diff(shorter, longer[:len(shorter)]); diff != "" {
		t.Errorf("%s: history was rewritten (-before +after)\n%s", what, diff)
	}
}

// TestHistoryOnlyGrows cuts each captured conversation where the model was
// asked, and checks that what it was asked with is the beginning of the rest.
func TestHistoryOnlyGrows(t *testing.T) {
	t.Parallel()
	all := captures(t)
	isPrefix(t, "codex-1 and codex-2", messages(t, all["codex-1"]), messages(t, all["codex-2"]))
	cuts := 0
	for name, body := range all {
		whole := messages(t, body)
		req, err := rawjson.ParseObject(body)
		if err != nil {
			t.Fatal(err)
		}
		items, err := rawjson.ParseArray(req.Get("input"))
		if err != nil {
			t.Fatal(err)
		}
		said := func(i int) bool { // by the model
			if i == len(items) {
				return true
			}
			return bytes.Contains(items[i], []byte(`"role":"assistant"`)) || bytes.Contains(items[i], []byte(`_call","`))
		}
		for i := 1; i <= len(items); i++ {
			if !said(i) || said(i-1) {
				continue
			}
			cuts++
			var input []byte
			for _, it := range items[:i] {
				input = append(append(input, ','), it...)
			}
			input[0] = '['
			req.Set("input", append(input, ']'))
			isPrefix(t, name, messages(t, req.Append(nil)), whole)
		}
	}
	if cuts < len(all) {
		t.Errorf("%d cuts in %d captures", cuts, len(all))
	}
}

func TestWebSocketIsAnswered426(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for pattern, handler := range (responses.Protocol{}).Asides() {
		mux.HandleFunc(pattern, handler)
	}
	r := httptest.NewRequest("GET", "/v1/responses", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, r)
	want := `{"error":{"message":"responses are made with POST /v1/responses and streamed as server-sent events; there is no WebSocket here","type":"invalid_request_error","param":null,"code":null}}`
	if rec.Code != 426 || rec.Header().Get("Upgrade") == "" || rec.Body.String() != want {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	req, err := responses.Protocol{}.DecodeCount(nil, []byte(`{"model":"m","input":"hi"}`))
	if err != nil || len(req.Messages) != 1 {
		t.Fatal(req, err)
	}
	rec := httptest.NewRecorder()
	responses.Protocol{}.Count(rec, req, 11)
	if got := rec.Body.String(); got != `{"object":"response.input_tokens","input_tokens":11}` {
		t.Error(got)
	}
}

func TestAnErrorThatIsNotForTheHarnessIsNotShown(t *testing.T) {
	t.Parallel()
	protocoltest.HidesErrors(t, responses.Protocol{}, 200)
}

func TestAnAnswerWithoutAnEndIsNotTakenForWhole(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		rec := httptest.NewRecorder()
		err := responses.Protocol{}.Reply(rec, llm.Request{Stream: stream}, func(yield func(llm.Event, error) bool) { yield(llm.Event{Text: "a"}, nil) })
		if err == nil || strings.Contains(rec.Body.String(), "response.completed") || strings.Contains(rec.Body.String(), `"status":"completed"`) {
			t.Errorf("stream %v: error %v: %s", stream, err, rec.Body)
		}
	}
}

// TestDeltasArePassedOnAtOnce looks at the connection while the engine speaks.
func TestDeltasArePassedOnAtOnce(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	err := responses.Protocol{}.Reply(rec, llm.Request{Stream: true}, func(yield func(llm.Event, error) bool) {
		for _, step := range []struct {
			event llm.Event
			shown string
		}{
			{llm.Event{KeepAlive: true}, `"type":"response.in_progress"`},
			{llm.Event{PromptIDs: llm.IDs{1}}, ""},
			{llm.Event{Reasoning: "why"}, `"delta":"why"`},
			{llm.Event{Text: "one"}, `"delta":"one"`},
			{llm.Event{Text: "two", More: true}, ""},
			{llm.Event{Text: "three"}, `"delta":"three"`},
			{llm.Event{ToolCalls: []llm.ToolCallDelta{{ID: "c", Name: "f", Arguments: "{}"}}}, `"delta":"{}"`},
			{llm.Event{Finish: llm.FinishToolCalls}, `"type":"response.completed"`},
		} {
			before := rec.Body.Len()
			more := yield(step.event, nil)
			added := rec.Body.String()[before:]
			if step.shown == "" && added != "" || !strings.Contains(added, step.shown) {
				t.Errorf("after %+v: %q", step.event, added)
			}
			if !more {
				return
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPreviousResponse checks that the id of an answer comes back as the answer.
func TestPreviousResponse(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	req := llm.Request{ID: "call-000042"}
	err := responses.Protocol{}.Reply(rec, req, func(yield func(llm.Event, error) bool) { yield(llm.Event{Text: "a", Finish: "stop"}, nil) })
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ ID string }
	if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	for name, input := range map[string]string{"with more to say": `,"input":"go on"`, "with nothing": ``} {
		next, err := responses.Protocol{}.Decode(nil, []byte(`{"previous_response_id":"`+answer.ID+`"`+input+`}`))
		if err != nil || next.Previous != req.ID {
			t.Errorf("%s: previous %q, error %v", name, next.Previous, err)
		}
	}
}

// FuzzDecode checks that whatever is accepted can be written out again, and
// that no error lacks what a harness needs of it.
func FuzzDecode(f *testing.F) {
	for _, file := range protocoltest.Files(f) {
		f.Add(file.Request())
	}
	for _, small := range []string{
		`{"input":[{"type":"reasoning","encrypted_content":"polar:YQ=="},{"type":"local_shell_call","id":"a_b_1","action":{}}]}`,
		`{"input":[{"type":"custom_tool_call","call_id":"c","name":"n","input":""},{"type":"tool_search_output","call_id":"c","tools":[]}]}`,
		`{"input":"","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"x","format":{}}]}],"tool_choice":{"type":"allowed_tools"}}`,
		`{"input":[{"type":"input_text","text":""}],"text":{"format":{"type":"json_schema"}},"include":"","metadata":{}}`,
	} {
		f.Add([]byte(small))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := responses.Protocol{}.Decode(nil, body)
		if !protocoltest.Decoded(t, req, err, 400) {
			return
		}
		rec := httptest.NewRecorder()
		err = responses.Protocol{}.Reply(rec, llm.Request{Reply: req.Reply}, func(yield func(llm.Event, error) bool) {
			yield(llm.Event{Reasoning: "a", Text: "b", Finish: llm.FinishStop}, nil)
		})
		if err != nil || rawjson.Valid(rec.Body.Bytes()) != nil {
			t.Errorf("reply: %v: %s", err, rec.Body)
		}
	})
}
