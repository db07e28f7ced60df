package anthropic_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"polar/llm"
	"polar/protocol/anthropic"
	"polar/rawjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden reads a request and, if the file has events of an engine, writes
// the answer both ways. A section that is not there is not looked at, except
// that one of the kind must be.
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
			got := map[string]string{}
			req, err := anthropic.Protocol{}.Decode(httptest.NewRequest("POST", "/v1/messages?beta=true", nil), sections["request.json"].Data)
			if err != nil {
				t.Fatal(err)
			}
			req.ID = "call-000003"
			got["decoded.txt"] = dump(req)
			if events := sections["events.jsonl"]; events != nil {
				req.Stream = true
				got["stream.sse"] = reply(t, req, events.Data)
				req.Stream = false
				got["plain.json"] = reply(t, req, events.Data)
			}
			for name, text := range got {
				if sections[name] == nil {
					t.Fatalf("no section %s", name)
				}
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
	for _, m := range messages(req) {
		line("message", json.RawMessage(m))
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
	for _, m := range req.Extra {
		line("extra "+m.Key, m.Value)
	}
	line("reply", fmt.Sprintf("%+v", req.Reply))
	return b.String()
}

// messages are the messages of a request as an engine is sent them.
func messages(req llm.Request) []string {
	var out []string
	for _, m := range req.Messages {
		out = append(out, string(m.JSON("reasoning_content")))
	}
	return out
}

type goldenEvent struct {
	KeepAlive bool                `json:"keep_alive"`
	PromptIDs llm.IDs             `json:"prompt_ids"`
	IDs       llm.IDs             `json:"ids"`
	Text      string              `json:"text"`
	Reasoning string              `json:"reasoning"`
	ToolCalls []llm.ToolCallDelta `json:"tool_calls"`
	Finish    string              `json:"finish"`
	Stop      string              `json:"stop"`
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
				KeepAlive: g.KeepAlive, PromptIDs: g.PromptIDs, Text: g.Text, Reasoning: g.Reasoning, ToolCalls: g.ToolCalls,
				Finish: g.Finish, Stop: g.Stop, Usage: g.Usage,
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

func reply(t *testing.T, req llm.Request, events []byte) string {
	t.Helper()
	rec := httptest.NewRecorder()
	err := anthropic.Protocol{}.Reply(rec, req, play(t, events))
	text := rec.Body.String()
	if !strings.Contains(rec.Header().Get("Content-Type"), "event-stream") {
		if rawjson.Valid([]byte(text)) != nil {
			t.Errorf("not JSON: %s", text)
		}
		text += "\n"
	}
	return fmt.Sprintf("%d %s error=%v\n%s", rec.Code, rec.Header().Get("Content-Type"), err, text)
}
