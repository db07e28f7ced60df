package responses_test

import (
	"regexp"
	"testing"

	"polar/llm"
	"polar/protocol/protocoltest"
	"polar/protocol/responses"
)

// TestGolden has a request with what it is read as, and the events of an answer
// with what they are written as, streamed and whole.
func TestGolden(t *testing.T) {
	t.Parallel()
	protocoltest.Golden(t, func(t *testing.T, f protocoltest.File) []protocoltest.Section {
		t.Helper()
		req, err := responses.Protocol{}.Decode(nil, f.Request())
		if err != nil {
			t.Fatal(err)
		}
		req.ID = "call-000007"
		decoded, streamed, plain := req, req, req
		decoded.Reply = nil // not pinned here: the answers show it
		streamed.Stream, plain.Stream = true, false
		return []protocoltest.Section{
			{Name: "decoded.txt", Text: protocoltest.Dump(decoded)},
			{Name: "stream.sse", Text: reply(t, streamed, f.Events())},
			{Name: "plain.json", Text: reply(t, plain, f.Events())},
		}
	})
}

var createdPattern = regexp.MustCompile(`"created_at":(\d{10})\b`)

// reply writes the answer and puts a fixed value for the time.
func reply(t *testing.T, req llm.Request, events []byte) string {
	t.Helper()
	return createdPattern.ReplaceAllString(protocoltest.Reply(t, responses.Protocol{}, req, events), `"created_at":0`)
}
