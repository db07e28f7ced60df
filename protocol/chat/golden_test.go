package chat_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"polar/llm"
	"polar/protocol/chat"
	"polar/rawjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]*txtar.File{}
			for i := range a.Files {
				sections[a.Files[i].Name] = &a.Files[i]
			}
			req, err := chat.Protocol{}.Decode(httptest.NewRequest("POST", "/", nil), sections["request.json"].Data)
			if err != nil {
				t.Fatal(err)
			}
			req.ID = "call-000003"
			events := sections["events.jsonl"].Data
			got := map[string]string{"decoded.txt": dump(req)}
			req.Stream = true
			got["stream.sse"] = reply(t, req, events)
			req.Stream = false
			got["plain.json"] = reply(t, req, events)
			for name, text := range got {
				if *update {
					sections[name].Data = []byte(text)
				}
				if diff := cmp.Diff(string(sections[name].Data), text); diff != "" {
					t.Errorf("%s (-want +got)\n%s", name, diff)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// dump writes a request with every raw part as it is, a field a line.
func dump(req llm.Request) string {
	var b strings.Builder
	line := func(name string, value any) {
		if raw, ok := value.(json.RawMessage); ok {
			if raw != nil {
				fmt.Fprintf(&b, "%s: %s\n", name, raw)
			}
			return
		}
		fmt.Fprintf(&b, "%s: %v\n", name, value)
	}
	line("model", req.Model)
	line("stream", req.Stream)
	for _, m := range req.Messages {
		line("message", json.RawMessage(m.AppendJSON(nil, "reasoning_content")))
	}
	for _, tool := range req.Tools {
		line("tool", tool)
	}
	line("tool_choice", req.ToolChoice)
	line("parallel_tool_calls", req.ParallelToolCalls)
	line("response_format", req.ResponseFormat)
	sampling, err := json.Marshal(req.Sampling)
	if err != nil {
		return err.Error()
	}
	line("sampling", json.RawMessage(sampling))
	if req.TopLogprobs != nil {
		line("top_logprobs", *req.TopLogprobs)
	}
	for _, m := range req.Extra {
		line("extra "+m.Key, m.Value)
	}
	line("reply", fmt.Sprintf("%+v", req.Reply))
	return b.String()
}

type goldenEvent struct {
	KeepAlive bool                `json:"keep_alive"`
	More      bool                `json:"more"`
	PromptIDs llm.IDs             `json:"prompt_ids"`
	IDs       llm.IDs             `json:"ids"`
	Text      string              `json:"text"`
	Reasoning string              `json:"reasoning"`
	ToolCalls []llm.ToolCallDelta `json:"tool_calls"`
	Logprobs  json.RawMessage     `json:"logprobs"`
	Finish    string              `json:"finish"`
	Usage     *llm.Usage          `json:"usage"`
	Error     *llm.Error          `json:"error"`
}

func play(t *testing.T, lines []byte) iter.Seq2[llm.Event, error] {
	t.Helper()
	return func(yield func(llm.Event, error) bool) {
		for line := range strings.Lines(string(lines)) {
			var g goldenEvent
			if err := json.Unmarshal([]byte(line), &g); err != nil {
				t.Fatal(err)
			}
			e := llm.Event{
				KeepAlive: g.KeepAlive, More: g.More, PromptIDs: g.PromptIDs, Text: g.Text, Reasoning: g.Reasoning, ToolCalls: g.ToolCalls,
				Logprobs: g.Logprobs, Finish: g.Finish, Usage: g.Usage,
			}
			for _, id := range g.IDs {
				e.Tokens = append(e.Tokens, llm.Token{ID: id, Logprob: -1})
			}
			var err error
			if g.Error != nil {
				err = g.Error
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

var createdPattern = regexp.MustCompile(`"created":(\d{10})\b`)

// reply writes the answer and puts a fixed value for its time, which must be
// one and the same in all of an answer.
func reply(t *testing.T, req llm.Request, events []byte) string {
	t.Helper()
	rec := httptest.NewRecorder()
	err := chat.Protocol{}.Reply(rec, req, play(t, events))
	text := rec.Body.String()
	if !req.Stream {
		if rawjson.Valid([]byte(text)) != nil {
			t.Errorf("not JSON: %s", text)
		}
		text += "\n"
	}
	seen := map[string]bool{}
	text = createdPattern.ReplaceAllStringFunc(text, func(s string) string {
		seen[s] = true
		return `"created":X`
	})
	if len(seen) > 1 {
		t.Errorf("more than one time in an answer: %v", seen)
	}
	return fmt.Sprintf("%d %s error=%v\n%s", rec.Code, rec.Header().Get("Content-Type"), err, text)
}
