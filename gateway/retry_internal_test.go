package gateway

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// TestFingerprintCoversWhatIsAsked changes each field of a request in turn: a
// field that is added to it later must be hashed or listed here.
func TestFingerprintCoversWhatIsAsked(t *testing.T) {
	t.Parallel()
	seed := maphash.MakeSeed()
	whole := func() llm.Request {
		return llm.Request{
			Messages: []llm.Message{{ToolCalls: []llm.ToolCall{{}}}},
			Tools:    []json.RawMessage{nil}, Extra: rawjson.Object{{}},
		}
	}
	base := whole()
	want := fingerprint(seed, "chat", &base)
	if got := fingerprint(seed, "chat", &base); got != want {
		t.Error("a request differs from itself")
	}
	if fingerprint(seed, "responses", &base) == want {
		t.Error("the wire does not count")
	}
	ignored := []string{"ID", "Stream", "CountOnly", "Affinity", "Reply"}
	for name, pick := range map[string]func(*llm.Request) any{
		"Request":  func(r *llm.Request) any { return r },
		"Message":  func(r *llm.Request) any { return &r.Messages[0] },
		"ToolCall": func(r *llm.Request) any { return &r.Messages[0].ToolCalls[0] },
		"Sampling": func(r *llm.Request) any { return &r.Sampling },
		"Member":   func(r *llm.Request) any { return &r.Extra[0] },
	} {
		typ := reflect.TypeOf(pick(&base)).Elem()
		for i := range typ.NumField() {
			if field := typ.Field(i); field.IsExported() && field.Name != "Sampling" {
				changed := whole()
				fill(t, reflect.ValueOf(pick(&changed)).Elem().Field(i))
				differs := fingerprint(seed, "chat", &changed) != want
				if differs == (name == "Request" && slices.Contains(ignored, field.Name)) {
					t.Errorf("%s.%s: differs %v", name, field.Name, differs)
				}
			}
		}
	}
}

// fill makes a value another than zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	set, ok := map[reflect.Kind]func(){
		reflect.String:    func() { v.SetString("x") },
		reflect.Bool:      func() { v.SetBool(true) },
		reflect.Pointer:   func() { v.Set(reflect.New(v.Type().Elem())) },
		reflect.Slice:     func() { v.Set(reflect.MakeSlice(v.Type(), v.Len()+2, v.Len()+2)) },
		reflect.Interface: func() { v.Set(reflect.ValueOf(1)) },
	}[v.Kind()]
	if !ok {
		t.Fatalf("no value for a %v", v.Kind())
	}
	set()
}

func TestWhoSaysThatItAsksAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, value string
		want        bool
	}{
		{"X-Stainless-Retry-Count", "0", false},
		{"X-Stainless-Retry-Count", "1", true},
		{"X-Stainless-Retry-Count", "many", false},
		{"Amz-Sdk-Request", "attempt=1; max=3", false},
		{"Amz-Sdk-Request", "attempt=2; max=3", true},
		{"Amz-Sdk-Request", "max=3", false},
		{"User-Agent", "2", false},
	} {
		h := http.Header{}
		h.Set(tc.name, tc.value)
		if got := isRetry(h); got != tc.want {
			t.Errorf("%s: %s: %v", tc.name, tc.value, got)
		}
	}
}

func TestFewAnswersAreRemembered(t *testing.T) {
	t.Parallel()
	ended := func(r *recent, n, bytes int) {
		for range n {
			turn := &turn{}
			r.begin(turn, false, func() polar.CallID { return "x" })
			turn.complete(llm.Reply{Message: llm.Message{Content: make([]byte, bytes)}}, llm.Event{}, &polar.Call{})
			r.trim()
		}
	}
	var many, large, running recent
	ended(&many, 3*maxKeptAnswers, 1)
	if n := len(many.turns); n != maxKeptAnswers {
		t.Errorf("%d answers are remembered", n)
	}
	ended(&large, 4, maxKeptAnswerBytes/2)
	if n := len(large.turns); n != 2 {
		t.Errorf("%d large answers are remembered", n)
	}
	first := &turn{}
	running.begin(first, false, func() polar.CallID { return "x" })
	ended(&running, 3*maxKeptAnswers, 1)
	if len(running.turns) != maxKeptAnswers+1 || running.turns[0] != first {
		t.Error("a call under way was forgotten")
	}
}
