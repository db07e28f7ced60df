package responses_test

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
	"polar/protocol/responses"
	"polar/rawjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden has a request with what it is read as, and the events of an answer
// with what they are written as, streamed and whole.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := golden(t, section(a, "request.json"), section(a, "events.jsonl"))
			for _, f := range got {
				want := section(a, f.Name)
				if diff := cmp.Diff(string(want), string(f.Data)); diff != "" && !*update {
					t.Errorf("%s (-want +got)\n%s", f.Name, diff)
				}
			}
			if *update {
				a.Files = append(a.Files[:2], got...)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func golden(t *testing.T, request, events []byte) []txtar.File {
	t.Helper()
	req, err := responses.Protocol{}.Decode(nil, request)
	if err != nil {
		t.Fatal(err)
	}
	got := []txtar.File{{Name: "decoded.txt", Data: []byte(dump(req))}}
	req.ID = "call-000007"
	req.Stream = true
	got = append(got, txtar.File{Name: "stream.sse", Data: []byte(reply(t, req, play(t, events)))})
	req.Stream = false
	return append(got, txtar.File{Name: "plain.json", Data: []byte(reply(t, req, play(t, events)))})
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
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
	if req.Previous != "" {
		line("previous", req.Previous)
	}
	for _, m := range req.Messages {
		line("message", m.JSON("reasoning_content"))
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
	return b.String()
}

type goldenEvent struct {
	KeepAlive bool                `json:"keep_alive"`
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
				t.Fatalf("%v: %s", err, line)
			}
			e := llm.Event{
				KeepAlive: g.KeepAlive, PromptIDs: g.PromptIDs, Text: g.Text, Reasoning: g.Reasoning, ToolCalls: g.ToolCalls,
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

var createdPattern = regexp.MustCompile(`"created_at":(\d{10})\b`)

// reply writes the answer and puts a fixed value for the time.
func reply(t *testing.T, req llm.Request, events iter.Seq2[llm.Event, error]) string {
	t.Helper()
	rec := httptest.NewRecorder()
	err := responses.Protocol{}.Reply(rec, req, events)
	text := rec.Body.String()
	if !req.Stream {
		if rawjson.Valid([]byte(text)) != nil {
			t.Errorf("not JSON: %s", text)
		}
		text += "\n"
	}
	text = createdPattern.ReplaceAllString(text, `"created_at":0`)
	head := fmt.Sprintf("%d %s error=%v\n", rec.Code, rec.Header().Get("Content-Type"), err)
	if ignored := rec.Header().Get("X-Polar-Ignored-Tools"); ignored != "" {
		head += "X-Polar-Ignored-Tools: " + ignored + "\n"
	}
	return head + text
}
