package gemini_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"polar/llm"
	"polar/protocol/gemini"
	"polar/protocol/protocoltest"
)

// TestGolden reads a request and writes the answer to it in each of its three
// forms. The first line of a file is the URL.
func TestGolden(t *testing.T) {
	t.Parallel()
	protocoltest.Golden(t, func(t *testing.T, f protocoltest.File) []protocoltest.Section {
		t.Helper()
		req, err := decode(f.Title(), f.Request())
		if err != nil {
			t.Fatal(err)
		}
		got := []protocoltest.Section{{Name: "decoded.txt", Text: protocoltest.Dump(req)}}
		if f.Events() == nil {
			return got
		}
		return append(got,
			protocoltest.Section{Name: "stream.sse", Text: reply(t, answering(t, f, "streamGenerateContent?alt=sse"), f.Events())},
			protocoltest.Section{Name: "array.json", Text: reply(t, answering(t, f, "streamGenerateContent"), f.Events())},
			protocoltest.Section{Name: "plain.json", Text: reply(t, answering(t, f, "generateContent"), f.Events())},
		)
	})
}

func decode(url string, body []byte) (llm.Request, error) {
	return gemini.Protocol{}.Decode(httptest.NewRequest("POST", url, nil), body)
}

// answering is the request of a golden file with another verb.
func answering(t *testing.T, f protocoltest.File, verb string) llm.Request {
	t.Helper()
	url := f.Title()
	req, err := decode(url[:strings.LastIndexByte(url, ':')+1]+verb, f.Request())
	if err != nil {
		t.Fatal(err)
	}
	req.ID = "call-000003"
	return req
}

// reply writes the answer with line ends that a golden file can have.
func reply(t *testing.T, req llm.Request, events []byte) string {
	t.Helper()
	return strings.ReplaceAll(protocoltest.Reply(t, gemini.Protocol{}, req, events), "\r", "")
}
