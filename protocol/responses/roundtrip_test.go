package responses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"polar/llm"
	"polar/protocol/responses"
	"polar/rawjson"
	"polar/sse"
)

const roundTripTools = `[{"type":"function","name":"f"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"g"},{"type":"custom","name":"y"}]},` +
	`{"type":"custom","name":"x","format":{"type":"text"}},{"type":"local_shell"},{"type":"tool_search","execution":"client"}]`

// TestWhatIsSaidComesBack checks, for answers of all kinds, that a stream and a
// whole response have the same items, that the deltas add up to them, and that a
// harness which sends the items back sends the message that was sampled.
func TestWhatIsSaidComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := drawAnswer(t)
		req, err := responses.Protocol{}.Decode(nil, []byte(`{"input":"go","include":["reasoning.encrypted_content"],"tools":`+roundTripTools+`}`))
		if err != nil {
			t.Fatal(err)
		}
		req.ID = "call-000001"
		whole := outputOf(t, wholeResponse(t, req, events))
		streamed := streamedItems(t, req, events)
		if diff := cmp.Diff(whole, streamed); diff != "" {
			t.Errorf("items (-whole +streamed)\n%s", diff)
		}
		back, err := responses.Protocol{}.Decode(nil, []byte(`{"input":[{"role":"user","content":"go"},`+strings.Join(whole, ",")+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		said, err := llm.Collect(play2(events))
		if err != nil {
			t.Fatal(err)
		}
		if len(back.Messages) != 2 {
			t.Fatalf("%d messages came back", len(back.Messages))
		}
		diff := cmp.Diff(said.Message, back.Messages[1],
			cmpopts.IgnoreUnexported(llm.Message{}), cmp.Transformer("text", func(m json.RawMessage) string {
				s, _ := rawjson.String(m)
				return fmt.Sprint(m == nil, s)
			}))
		if diff != "" {
			t.Errorf("message (-sampled +sent back)\n%s", diff)
		}
	})
}

// drawAnswer makes the events of an answer: runs of reasoning and text, then
// calls, cut into pieces anywhere.
func drawAnswer(t *rapid.T) []llm.Event {
	var events []llm.Event
	for range rapid.IntRange(0, 4).Draw(t, "texts") {
		s := rapid.StringN(1, 8, -1).Draw(t, "text")
		if rapid.Bool().Draw(t, "reasoning") {
			events = append(events, llm.Event{Reasoning: s})
		} else {
			events = append(events, llm.Event{Text: s})
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
		name := rapid.SampledFrom([]string{"f", "n__g", "n__y", "x", "local_shell", "tool_search", "unknown"}).Draw(t, "name")
		var args string
		switch text := rapid.String().Draw(t, "input"); name {
		case "x", "n__y":
			args = `{"input": ` + string(rawjson.Quote(text)) + `}`
		case "local_shell":
			args = `{"command":["cat",` + string(rawjson.Quote(text)) + `]}`
		case "tool_search":
			args = `{"query":` + string(rawjson.Quote(text)) + `}`
		default:
			args = text
		}
		events = append(events, llm.Event{ToolCalls: []llm.ToolCallDelta{{Index: i, ID: fmt.Sprintf("c%d", i), Name: name}}})
		runes := []rune(args)
		for len(runes) > 0 {
			n := rapid.IntRange(1, len(runes)).Draw(t, "piece")
			events = append(events, llm.Event{ToolCalls: []llm.ToolCallDelta{{Index: i, Arguments: string(runes[:n])}}})
			runes = runes[n:]
		}
	}
	return append(events, llm.Event{Finish: llm.FinishStop, Usage: &llm.Usage{}})
}

func play2(events []llm.Event) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func wholeResponse(t *rapid.T, req llm.Request, events []llm.Event) []byte {
	rec := httptest.NewRecorder()
	if err := (responses.Protocol{}).Reply(rec, req, play2(events)); err != nil {
		t.Fatal(err)
	}
	return rec.Body.Bytes()
}

func outputOf(t *rapid.T, response []byte) []string {
	o, err := rawjson.ParseObject(response)
	if err != nil {
		t.Fatal(err)
	}
	items, err := rawjson.ParseArray(o.Get("output"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, it := range items {
		out = append(out, string(it))
	}
	return out
}

// streamedItems reads a stream as a client does and checks it on the way.
func streamedItems(t *rapid.T, req llm.Request, events []llm.Event) []string {
	req.Stream = true
	rec := httptest.NewRecorder()
	if err := (responses.Protocol{}).Reply(rec, req, play2(events)); err != nil {
		t.Fatal(err)
	}
	var items []string
	texts := map[string]string{}
	r := sse.NewReader(rec.Body, sse.Config{})
	for seq := 0; ; seq++ {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Type           string
			SequenceNumber int    `json:"sequence_number"`
			ItemID         string `json:"item_id"`
			OutputIndex    int    `json:"output_index"`
			Delta          string
			Text           *string
			Arguments      *string
			Input          *string
			Item           json.RawMessage
			Response       json.RawMessage
		}
		if err := json.Unmarshal(e.Data, &got); err != nil {
			t.Fatal(err)
		}
		if got.Type != e.Type || got.SequenceNumber != seq {
			t.Errorf("event %d is %s, number %d: %s", seq, e.Type, got.SequenceNumber, e.Data)
		}
		if strings.HasSuffix(got.Type, ".delta") {
			texts[got.ItemID] += got.Delta
		}
		for _, done := range []*string{got.Text, got.Arguments, got.Input} {
			if done != nil && *done != texts[got.ItemID] {
				t.Errorf("%s: %q, and the deltas are %q", got.Type, *done, texts[got.ItemID])
			}
		}
		switch got.Type {
		case "response.output_item.done":
			for len(items) <= got.OutputIndex {
				items = append(items, "")
			}
			items[got.OutputIndex] = string(got.Item)
		case "response.completed":
			if diff := cmp.Diff(items, outputOf(t, got.Response)); diff != "" {
				t.Errorf("items (-told +in the end)\n%s", diff)
			}
		}
	}
	return items
}
