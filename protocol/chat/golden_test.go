package chat_test

import (
	"net/http/httptest"
	"regexp"
	"testing"

	"polar/llm"
	"polar/protocol/chat"
	"polar/protocol/protocoltest"
)

func TestGolden(t *testing.T) {
	t.Parallel()
	protocoltest.Golden(t, func(t *testing.T, f protocoltest.File) []protocoltest.Section {
		t.Helper()
		req, err := chat.Protocol{}.Decode(httptest.NewRequest("POST", "/", nil), f.Request())
		if err != nil {
			t.Fatal(err)
		}
		req.ID = "call-000003"
		streamed, plain := req, req
		streamed.Stream, plain.Stream = true, false
		return []protocoltest.Section{
			{Name: "decoded.txt", Text: protocoltest.Dump(req)},
			{Name: "stream.sse", Text: reply(t, streamed, f.Events())},
			{Name: "plain.json", Text: reply(t, plain, f.Events())},
		}
	})
}

var createdPattern = regexp.MustCompile(`"created":(\d{10})\b`)

// reply writes the answer and puts a fixed value for its time, which must be
// one and the same in all of an answer.
func reply(t *testing.T, req llm.Request, events []byte) string {
	t.Helper()
	seen := map[string]bool{}
	text := createdPattern.ReplaceAllStringFunc(protocoltest.Reply(t, chat.Protocol{}, req, events), func(s string) string {
		seen[s] = true
		return `"created":X`
	})
	if len(seen) > 1 {
		t.Errorf("more than one time in an answer: %v", seen)
	}
	return text
}
