package backend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"polar/llm"
)

// seeds adds what the golden files have of engines.
func seeds(f *testing.F, prefix string) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		a := txtar.Parse(data)
		if !strings.HasPrefix(a.Files[0].Name, prefix) {
			continue
		}
		for line := range strings.Lines(string(a.Files[0].Data)) {
			f.Add([]byte(strings.TrimSpace(strings.TrimPrefix(line, "data: "))))
		}
	}
}

func FuzzChat(f *testing.F) {
	seeds(f, "chat")
	seeds(f, "upstream")
	f.Fuzz(func(t *testing.T, data []byte) {
		once := chunk{keepLogprobs: true}
		late := chunk{late: true}
		if err := once.parse(data); err != nil {
			return
		}
		if err := late.parse(data); err != nil {
			t.Fatalf("read once and not a second time: %v", err)
		}
		if late.event.Tokens != nil {
			t.Error("tokens that were to come late came at once")
		}
		same(t, once.event.Tokens, late.tokens())
		if len(once.event.ToolCalls) > maxToolCalls {
			t.Errorf("%d tool calls", len(once.event.ToolCalls))
		}
	})
}

func same(t *testing.T, a, b []llm.Token) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d tokens and %d", len(a), len(b))
	}
	for i := range a {
		if a[i].ID != b[i].ID {
			t.Fatalf("token %d is %v and %v", i, a[i], b[i])
		}
	}
}

// What was gathered only grows, whatever comes next.
func FuzzGenerate(f *testing.F) {
	seeds(f, "generate")
	f.Add([]byte(`{"text":"a","output_ids":[1],"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-1,1,null]]}}` + "\n" +
		`{"text":"ab","output_ids":[1,2],"meta_info":{"completion_tokens":2,"output_token_logprobs":[[-2,2,null]],"output_token_logprobs_length":2}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var g generated
		var given []llm.Token
		for line := range strings.Lines(string(data)) {
			ids, sampled, text := len(g.read.ids), len(g.read.sampled), g.read.text
			if g.read.take([]byte(line)) != nil {
				return
			}
			if len(g.read.ids) < ids || len(g.read.sampled) < sampled || !strings.HasPrefix(g.read.text, text) {
				t.Fatalf("%q took something back", line)
			}
			given = append(given, g.tokens()...)
			if len(given) != g.given {
				t.Fatalf("%d tokens given, %d counted", len(given), g.given)
			}
			if g.read.finish != "" {
				break
			}
		}
		if g.read.finish != "" && len(given) < len(g.read.ids) {
			t.Fatalf("%d of %d ids were given", len(given), len(g.read.ids))
		}
	})
}
