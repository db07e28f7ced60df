package anthropic_test

import (
	"net/http/httptest"
	"testing"

	"polar/protocol/anthropic"
	"polar/protocol/protocoltest"
)

// TestGolden reads a request and, if the file has events of an engine, writes
// the answer both ways.
func TestGolden(t *testing.T) {
	t.Parallel()
	protocoltest.Golden(t, func(t *testing.T, f protocoltest.File) []protocoltest.Section {
		t.Helper()
		req, err := anthropic.Protocol{}.Decode(httptest.NewRequest("POST", "/v1/messages?beta=true", nil), f.Request())
		if err != nil {
			t.Fatal(err)
		}
		req.ID = "call-000003"
		got := []protocoltest.Section{{Name: "decoded.txt", Text: protocoltest.Dump(req)}}
		if f.Events() == nil {
			return got
		}
		streamed, plain := req, req
		streamed.Stream, plain.Stream = true, false
		return append(got,
			protocoltest.Section{Name: "stream.sse", Text: protocoltest.Reply(t, anthropic.Protocol{}, streamed, f.Events())},
			protocoltest.Section{Name: "plain.json", Text: protocoltest.Reply(t, anthropic.Protocol{}, plain, f.Events())},
		)
	})
}
