package backend_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"polar/backend"
	"polar/llm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// goldenEvent is an llm.Event, or the error after the last, as the golden
// files have it.
type goldenEvent struct {
	PromptIDs llm.IDs             `json:"prompt_ids,omitempty"`
	IDs       llm.IDs             `json:"ids,omitempty"`
	Logprobs  llm.Logprobs        `json:"logprobs,omitempty"`
	Text      string              `json:"text,omitempty"`
	Reasoning string              `json:"reasoning,omitempty"`
	ToolCalls []llm.ToolCallDelta `json:"tool_calls,omitempty"`
	Finish    string              `json:"finish,omitempty"`
	Stop      string              `json:"stop,omitempty"`
	Usage     *llm.Usage          `json:"usage,omitempty"`
	Model     string              `json:"model,omitempty"`
	Error     string              `json:"error,omitempty"`
	Kind      llm.ErrorKind       `json:"kind,omitempty"`
}

func TestStreamsOfTheEngine(t *testing.T) {
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
			engine, url := upstream(t, a)
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			for e, err := range engine.Generate(t.Context(), llm.Request{Model: "served", Tools: offered(a)}) {
				if err := enc.Encode(golden(e, err, url)); err != nil {
					t.Fatal(err)
				}
			}
			want := section(t, a, "events.jsonl")
			if *update {
				want.Data = []byte(b.String())
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want.Data), b.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// upstream serves what the archive has of an engine: the section's name says
// which engine it is and how it is asked.
func upstream(t *testing.T, a *txtar.Archive) (backend.Engine, string) {
	t.Helper()
	f := a.Files[0]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/chat/completions", "/generate":
			_, _ = w.Write(f.Data)
		case "/tokenize":
			_, _ = io.WriteString(w, `{"tokens":[5, 6, 7],"count":3,"max_model_len":-1}`)
		case "/separate_reasoning", "/parse_function_call":
			_, _ = w.Write(section(t, a, r.URL.Path[1:]+".json").Data)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	var engine backend.Engine
	var err error
	kind, how, _ := strings.Cut(f.Name, ".")
	switch kind {
	case "upstream":
		engine, err = backend.NewVLLM(backend.VLLMConfig{URL: server.URL})
	case "openai":
		engine, err = backend.NewOpenAI(backend.OpenAIConfig{URL: server.URL})
	default:
		engine, err = backend.NewSGLang(backend.SGLangConfig{URL: server.URL, BackoffSeconds: 0.0001})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	switch {
	case kind == "chat" && how == "sse":
		backend.SetStyle(engine, "chat_stream", "", "")
	case kind == "chat":
		backend.SetStyle(engine, "chat_whole", "", "")
	case kind == "generate":
		backend.SetStyle(engine, "generate", "", "")
	case kind == "parsed":
		backend.SetStyle(engine, "generate", "tools", "thoughts")
	}
	return engine, server.URL
}

func section(t *testing.T, a *txtar.Archive, name string) *txtar.File {
	t.Helper()
	for i := range a.Files {
		if a.Files[i].Name == name {
			return &a.Files[i]
		}
	}
	t.Fatalf("no section %s", name)
	return nil
}

// offered is a tool, where the archive has a call of one parsed.
func offered(a *txtar.Archive) []json.RawMessage {
	for _, f := range a.Files {
		if f.Name == "parse_function_call.json" {
			return []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"look"}}`)}
		}
	}
	return nil
}

func golden(e llm.Event, err error, url string) goldenEvent {
	g := goldenEvent{
		PromptIDs: e.PromptIDs, Text: e.Text, Reasoning: e.Reasoning, ToolCalls: e.ToolCalls,
		Finish: e.Finish, Stop: e.Stop, Usage: e.Usage,
	}
	for _, token := range e.Tokens {
		g.IDs = append(g.IDs, token.ID)
		g.Logprobs = append(g.Logprobs, token.Logprob)
	}
	if e.Engine != nil {
		g.Model = e.Engine.Model
	}
	if err != nil {
		g.Error = strings.ReplaceAll(err.Error(), url, "URL")
		if failed, ok := errors.AsType[*llm.Error](err); ok {
			g.Kind = failed.Kind
		}
	}
	return g
}

// open serves a fake engine and connects to it.
func open(tb testing.TB, serve http.HandlerFunc, c backend.VLLMConfig) (backend.Engine, string) {
	tb.Helper()
	server := httptest.NewServer(serve)
	tb.Cleanup(server.Close)
	c.URL = server.URL
	engine, err := backend.NewVLLM(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = engine.Close() })
	return engine, server.URL
}
