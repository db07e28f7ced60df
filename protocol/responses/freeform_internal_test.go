package responses

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFreeformTakesWhatTheModelWrote(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ arguments, want string }{
		"as it should be":         {`{"input": "a\nb\t\"c\" \\ \/ \u00e9 \ud83d\ude00"}`, "a\nb\t\"c\" \\ / é 😀"},
		"with space":              {" {\n \"input\" :\t\"a\" } ", "a"},
		"a line end as it is":     {"{\"input\":\"a\nb\"}", "a\nb"},
		"nothing":                 {``, ``},
		"an empty text":           {`{"input":""}`, ``},
		"no JSON at all":          {"*** Begin Patch\n", "*** Begin Patch\n"},
		"another argument":        {`{"patch":"a"}`, `{"patch":"a"}`},
		"no text":                 {`{"input":{"a":1}}`, `{"input":{"a":1}}`},
		"no argument":             {`{}`, `{}`},
		"space that does not end": {"{" + strings.Repeat(" ", 300), "{" + strings.Repeat(" ", 300)},
		"cut in the beginning":    {`{"inp`, ``},
		"cut in the text":         {`{"input":"ab`, `ab`},
		"cut in an escape":        {`{"input":"ab\`, `ab`},
		"cut in a code":           {`{"input":"ab\u00`, `ab`},
		"cut in a pair":           {`{"input":"ab\ud83d`, `ab` + "\ufffd"},
		"half a pair":             {`{"input":"\ud83d!\ude00"}`, "\ufffd!\ufffd"},
		"two first halves":        {`{"input":"\ud83d\ud83d\ude00"}`, "\ufffd😀"},
		"an escape that is none":  {`{"input":"\d\x"}`, `\d\x`},
		"a code that is none":     {`{"input":"\u12é\uz"}`, `\u12é\uz`},
		"a code cut by the end":   {`{"input":"\u12"}`, `\u12`},
		"more after the text":     {`{"input":"a"} and so on`, `a`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(tc.arguments)+1; size++ {
				if got := decodeIn(tc.arguments, size); got != tc.want {
					t.Errorf("in pieces of %d: %q, want %q", size, got, tc.want)
				}
			}
		})
	}
}

func decodeIn(arguments string, size int) string {
	var f freeform
	var got []byte
	for len(arguments) > 0 {
		n := min(size, len(arguments))
		got = f.write(got, arguments[:n])
		arguments = arguments[n:]
	}
	return string(f.end(got))
}

func TestFreeformIsWhatJSONSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		encoded, err := json.Marshal(map[string]string{"input": text})
		if err != nil {
			t.Fatal(err)
		}
		for _, arguments := range []string{string(encoded), freeformArguments(text)} {
			if got := decodeIn(arguments, rapid.IntRange(1, len(arguments)).Draw(t, "size")); got != text {
				t.Errorf("%q is %q", arguments, got)
			}
		}
	})
}
