package anthropic_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/llm"
	"polar/protocol/anthropic"
	"polar/protocol/protocoltest"
	"polar/rawjson"
)

// captures are requests of real harnesses, by default with their texts cut
// short. Whole ones can be given by hand.
var captures = flag.String("captures", "testdata/captures", "folder of captured requests")

func capture(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(*captures, name))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Request struct{ Body json.RawMessage }
	}
	if err := json.Unmarshal(file, &c); err != nil {
		t.Fatal(err)
	}
	return c.Request.Body
}

func decodeCapture(t *testing.T, name string) llm.Request {
	t.Helper()
	req, err := anthropic.Protocol{}.Decode(nil, capture(t, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return req
}

// TestCaptures checks that nothing that a model can read is lost on the way.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(*captures, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		name := filepath.Base(file)
		if !strings.HasPrefix(name, "claude-code-") && name != "pi-6-anthropic.json" {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			req := decodeCapture(t, name)
			sent := strings.Join(protocoltest.Messages(req), "\n")
			for _, noise := range []string{"x-anthropic-billing-header", "cache_control", "output_config", "ephemeral"} {
				if strings.Contains(sent, noise) {
					t.Errorf("%s is in the prompt", noise)
				}
			}
			var body struct {
				System []struct{ Text string }
				Tools  []struct {
					Name        string
					Defer       bool            `json:"defer_loading"`
					InputSchema json.RawMessage `json:"input_schema"`
				}
				Messages []struct{ Content json.RawMessage }
				Stream   bool
			}
			if err := json.Unmarshal(capture(t, name), &body); err != nil {
				t.Fatal(err)
			}
			if body.Stream != req.Stream {
				t.Errorf("stream is %v", req.Stream)
			}
			for _, block := range body.System {
				if !strings.HasPrefix(block.Text, "x-anthropic-billing-header") {
					wantText(t, sent, block.Text)
				}
			}
			for _, m := range body.Messages {
				for _, text := range texts(m.Content) {
					wantText(t, sent, text)
				}
			}
			tools := string(bytes.Join(rawTools(req), nil))
			for _, tool := range body.Tools {
				if has := strings.Contains(tools, `"parameters":`+string(tool.InputSchema)+"}"); has == tool.Defer {
					t.Errorf("tool %s, deferred %v, has its schema %v", tool.Name, tool.Defer, has)
				}
			}
		})
	}
	if seen != 11 {
		t.Errorf("%d captures, want 11", seen)
	}
}

func rawTools(req llm.Request) (out [][]byte) {
	for _, tool := range req.Tools {
		out = append(out, tool)
	}
	return out
}

// texts are all texts of a message, those of tool results too.
func texts(content json.RawMessage) []string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []string{text}
	}
	var blocks []struct {
		Text           string
		Input, Content json.RawMessage
	}
	if json.Unmarshal(content, &blocks) != nil {
		return nil
	}
	var out []string
	for _, b := range blocks {
		out = append(out, b.Text, string(b.Input))
		out = append(out, texts(b.Content)...)
	}
	return out
}

func wantText(t *testing.T, sent, text string) {
	t.Helper()
	quoted := string(rawjson.Quote(text))
	if !strings.Contains(sent, quoted[1:len(quoted)-1]) {
		t.Errorf("not in the prompt: %s", quoted)
	}
}

// TestAConversationOnlyGrows checks that what a harness sent before comes again
// unchanged before what is new.
func TestAConversationOnlyGrows(t *testing.T) {
	for _, pair := range [][2]string{
		{"claude-code-1.json", "claude-code-2.json"},
		{"claude-code-latest-1.json", "claude-code-latest-2.json"},
	} {
		first, second := decodeCapture(t, pair[0]), decodeCapture(t, pair[1])
		before, after := protocoltest.Messages(first), protocoltest.Messages(second)
		if len(after) <= len(before) {
			t.Fatalf("%v: %d messages after %d", pair, len(after), len(before))
		}
		if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
			t.Errorf("%v (-first +second)\n%s", pair, diff)
		}
		if diff := cmp.Diff(first.Tools, second.Tools); diff != "" {
			t.Errorf("%v tools (-first +second)\n%s", pair, diff)
		}
	}
}
