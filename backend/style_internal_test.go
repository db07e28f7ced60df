package backend

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// SetStyle makes an SGLang engine ask in one way, as if a probe had found it.
func SetStyle(e Engine, style, toolParser, reasoningParser string) {
	e.(*sglang).workers.root.known.Store(&abilities{
		style: style, tokenizer: true, toolParser: toolParser, reasoningParser: reasoningParser,
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine, err := NewSGLang(SGLangConfig{URL: "http://router"})
		if err != nil {
			t.Fatal(err)
		}
		status, list, asked := 200, `{"workers":[{"url":"http://a"},{"url":"http://b"}]}`, 0
		w := engine.(*sglang).workers
		w.root.http = &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			asked++
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(list))}, nil
		})}
		order := func() (urls string) {
			for _, s := range w.order(t.Context(), "s") {
				urls += strings.TrimPrefix(s.url, "http:/")
			}
			return urls
		}
		var got []string
		step := func(after time.Duration, change func()) {
			<-time.After(after)
			change()
			got = append(got, order())
		}
		step(0, func() {})
		first := w.list[0]
		step(time.Second, func() { list = `{"workers":[{"url":"http://c"},{"url":"http://a"}]}` })
		step(5*time.Second, func() {})
		if w.list[1] != first {
			t.Error("what was known of a worker was forgotten")
		}
		step(5*time.Second, func() { status = 500 })                       // what is known stands
		step(time.Second, func() { w.list[0].avoid(); w.list[1].avoid() }) // all alike
		step(5*time.Second, func() { status = 404 })                       // no router any more
		step(5*time.Second, func() { status = 200 })                       // which is not asked so soon
		step(time.Minute, func() {})
		want := []string{"/a/b", "/a/b", "/a/c", "/a/c", "/a/c", "/router", "/router", "/a/c"}
		for i := range want { // the order is the hash's to choose
			if len(got[i]) == len(want[i]) && strings.Contains(got[i], want[i][:2]) && strings.Contains(got[i], want[i][len(want[i])-2:]) {
				want[i] = got[i]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || asked != 5 {
			t.Errorf("asked %d times (-want +got)\n%s", asked, diff)
		}
	})
}
