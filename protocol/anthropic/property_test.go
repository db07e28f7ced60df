package anthropic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polar/llm"
	"polar/protocol/anthropic"
	"polar/protocol/protocoltest"
	"polar/rawjson"
	"polar/sse"
)

// block is a content block as a harness keeps it.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	args      string
}

type message struct {
	Content    []block
	StopReason string `json:"stop_reason"`
	Usage      map[string]int
}

// answers draws what an engine may say: thinking, text and tool calls in any
// order, in pieces, with signs of life and empty events in between.
func answers(t *rapid.T) []llm.Event {
	piece := rapid.StringMatching(`[a-z<"\\é\n ]{1,4}`)
	events := []llm.Event{{PromptIDs: llm.IDs{1, 2, 3}, Engine: &llm.Engine{Kind: "vllm"}}}
	calls := 0
	for range rapid.IntRange(0, 6).Draw(t, "runs") {
		kind := rapid.SampledFrom([]string{"thinking", "text", "tool"}).Draw(t, "kind")
		for i := range rapid.IntRange(1, 3).Draw(t, "pieces") {
			e := llm.Event{Tokens: []llm.Token{{ID: 7}}, More: rapid.Bool().Draw(t, "more")}
			switch kind {
			case "thinking":
				e.Reasoning = piece.Draw(t, "thought")
			case "text":
				e.Text = piece.Draw(t, "text")
			case "tool":
				d := llm.ToolCallDelta{Index: calls}
				if i == 0 {
					d.ID, d.Name = fmt.Sprintf("call_%d", calls), "f"
					d.Arguments = rapid.SampledFrom([]string{"", `{"a": `}).Draw(t, "args")
				} else {
					d.Arguments = rapid.SampledFrom([]string{`1.0`, `"<b>"`, `}`, ` [`}).Draw(t, "args")
				}
				e.ToolCalls = []llm.ToolCallDelta{d}
			}
			events = append(events, e)
			if rapid.Bool().Draw(t, "pause") {
				events = append(events, rapid.SampledFrom([]llm.Event{{KeepAlive: true}, {Tokens: []llm.Token{{ID: 8}}}}).Draw(t, "between"))
			}
		}
		if kind == "tool" {
			calls++
		}
	}
	finish := rapid.SampledFrom([]string{llm.FinishStop, llm.FinishLength, llm.FinishFilter}).Draw(t, "finish")
	return append(events, llm.Event{Finish: finish, Usage: &llm.Usage{PromptTokens: 3, CompletionTokens: 9, CachedTokens: 2}})
}

func sequence(events []llm.Event) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// TestAStreamSaysWhatABodySays puts a stream together as the official clients
// do, and compares it with the unstreamed answer to the same events.
func TestAStreamSaysWhatABodySays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := answers(t)
		plain, streamed := httptest.NewRecorder(), httptest.NewRecorder()
		if err := (anthropic.Protocol{}).Reply(plain, llm.Request{ID: "c"}, sequence(events)); err != nil {
			t.Fatal(err)
		}
		if err := (anthropic.Protocol{}).Reply(streamed, llm.Request{ID: "c", Stream: true}, sequence(events)); err != nil {
			t.Fatal(err)
		}
		var want message
		if err := json.Unmarshal(plain.Body.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		got := accumulate(t, streamed.Body)
		for i, b := range got.Content {
			if b.Type != "tool_use" || i >= len(want.Content) {
				continue
			}
			got.Content[i].Input = want.Content[i].Input
			var wrapped struct {
				Unparsed *struct{ Raw string } `json:"__unparsedToolInput"`
			}
			said := string(want.Content[i].Input)
			if json.Unmarshal(want.Content[i].Input, &wrapped) == nil && wrapped.Unparsed != nil {
				said = wrapped.Unparsed.Raw
			}
			if b.args != said && (b.args != "" || said != "{}") {
				t.Errorf("input %q in the stream, %q in the body", b.args, said)
			}
			got.Content[i].args = ""
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(block{})); diff != "" {
			t.Errorf("(-body +stream)\n%s", diff)
		}
	})
}

// accumulate reads a stream and checks that it keeps the order of events.
func accumulate(t *rapid.T, body io.Reader) message {
	var m message
	open, begun, ended := false, false, false
	r := sse.NewReader(body, sse.Config{})
	for {
		ev, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var data struct {
			Type    string
			Index   int
			Message message
			Block   block `json:"content_block"`
			Delta   struct {
				Type, Text, Thinking, Signature string
				PartialJSON                     string `json:"partial_json"`
				StopReason                      string `json:"stop_reason"`
			}
			Usage map[string]int
		}
		if err := json.Unmarshal(ev.Data, &data); err != nil || data.Type != ev.Type || ended || begun == (ev.Type == "message_start") && ev.Type != "ping" {
			t.Fatalf("%s %s: %v", ev.Type, ev.Data, err)
		}
		switch ev.Type {
		case "ping":
		case "message_start":
			begun = true
			if data.Message.Usage["input_tokens"] != 3 {
				t.Fatalf("message_start says %v", data.Message.Usage)
			}
		case "content_block_start":
			if open || data.Index != len(m.Content) {
				t.Fatalf("block %d begins after %d", data.Index, len(m.Content))
			}
			open = true
			m.Content = append(m.Content, data.Block)
		case "content_block_delta":
			if !open || data.Index != len(m.Content)-1 {
				t.Fatalf("delta of block %d of %d", data.Index, len(m.Content))
			}
			b := &m.Content[data.Index]
			b.Text += data.Delta.Text
			b.Thinking += data.Delta.Thinking
			b.Signature += data.Delta.Signature
			b.args += data.Delta.PartialJSON
		case "content_block_stop":
			if !open || data.Index != len(m.Content)-1 {
				t.Fatalf("end of block %d of %d", data.Index, len(m.Content))
			}
			open = false
		case "message_delta":
			m.StopReason, m.Usage = data.Delta.StopReason, data.Usage
		case "message_stop":
			ended = true
		default:
			t.Fatalf("event %s", ev.Type)
		}
	}
	if open || !ended {
		t.Fatal("the stream has no end")
	}
	if m.Content == nil {
		m.Content = []block{}
	}
	return m
}

// TestAnAnswerComesBackAsItWasSaid has a harness send back what it was given:
// the next prompt has to go on with the message that the engine gave.
func TestAnAnswerComesBackAsItWasSaid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := answers(t)
		rec := httptest.NewRecorder()
		if err := (anthropic.Protocol{}).Reply(rec, llm.Request{ID: "c"}, sequence(events)); err != nil {
			t.Fatal(err)
		}
		var body struct{ Content json.RawMessage }
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		next, err := anthropic.Protocol{}.Decode(nil, fmt.Appendf(nil, `{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":%s},{"role":"user","content":"on"}]}`, body.Content))
		if err != nil {
			t.Fatal(err)
		}
		reply, err := llm.Collect(sequence(events))
		if err != nil {
			t.Fatal(err)
		}
		said := reply.Message
		for i, call := range said.ToolCalls { // what is no JSON comes back wrapped
			if call.Arguments == "" {
				said.ToolCalls[i].Arguments = "{}"
			} else if rawjson.Valid([]byte(call.Arguments)) != nil || !strings.HasPrefix(call.Arguments, "{") {
				said.ToolCalls[i].Arguments = string(fmt.Appendf(nil, `{"__unparsedToolInput":{"raw":%s,"len":%d}}`, rawjson.Quote(call.Arguments), len(call.Arguments)))
			}
		}
		if diff := cmp.Diff(string(said.JSON("reasoning")), string(next.Messages[1].JSON("reasoning"))); diff != "" {
			t.Errorf("(-said +sent back)\n%s", diff)
		}
	})
}

// TestGrowingKeepsTheBeginning checks what splits no trace: whatever a harness
// adds, and however it writes what it sent before.
func TestGrowingKeepsTheBeginning(t *testing.T) {
	t.Parallel()
	texts := rapid.StringMatching(`[a-z<é ]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		var turns [][2][]byte // each written in two ways
		write := func(role, text string, plain bool) []byte {
			if plain {
				return fmt.Appendf(nil, `{"role":%q,"content":%s}`, role, rawjson.Quote(text))
			}
			return fmt.Appendf(nil, `{"role":%q,"content":[{"type":"text","text":%s,"cache_control":{"type":"ephemeral"}}],"output_config":{}}`, role, rawjson.Quote(text))
		}
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			role := rapid.SampledFrom([]string{"user", "assistant", "system"}).Draw(t, "role")
			text := texts.Draw(t, "text")
			turns = append(turns, [2][]byte{write(role, text, rapid.Bool().Draw(t, "plain")), write(role, text, rapid.Bool().Draw(t, "plain"))})
		}
		request := func(n, way int) []string {
			var list [][]byte
			for _, turn := range turns[:n] {
				list = append(list, turn[way])
			}
			system := []string{`"x-anthropic-billing-header: a;\nBe."`, `[{"type":"text","text":"x-anthropic-billing-header: b;"},{"type":"text","text":"Be."}]`}[way]
			req, err := anthropic.Protocol{}.Decode(nil, fmt.Appendf(nil, `{"system":%s,"messages":[%s]}`, system, bytes.Join(list, []byte(","))))
			if err != nil {
				t.Fatal(err)
			}
			return protocoltest.Messages(req)
		}
		n := rapid.IntRange(1, len(turns)).Draw(t, "first")
		before, after := request(n, 0), request(len(turns), 1)
		if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
			t.Errorf("(-first +second)\n%s", diff)
		}
	})
}
