package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"polar"
)

// BenchmarkGatewayCall is one call after the other on one connection: straight
// to the engine, through a bare reverse proxy, and through the gateway. What
// each adds is the difference to the first. The engine's replies are the same:
// they have the prompt's ids in them.
func BenchmarkGatewayCall(b *testing.B) {
	for _, kilobytes := range []int{1, 100} {
		ids := strings.TrimSuffix(strings.Repeat("151643,", kilobytes*256), ",")
		events := []string{strings.Replace(prompt, "[1,2,3]", "["+ids+"]", 1)}
		for i := range 20 {
			events = append(events, chunk("word ", 100+i))
		}
		events = append(events, finish, usage(20), done)
		text := strings.Repeat("All work and no play makes me a dull boy. ", kilobytes*1024/42)
		body := fmt.Sprintf(`{"model":"asked","messages":[{"role":"user","content":%q}],"stream":true}`, text)

		engine := httptest.NewServer(says(events...))
		b.Cleanup(engine.Close)
		target, err := url.Parse(engine.URL)
		if err != nil {
			b.Fatal(err)
		}
		proxy := httptest.NewServer(whollyRead(httputil.NewSingleHostReverseProxy(target)))
		b.Cleanup(proxy.Close)
		r := newRig(b, says(events...), nil)
		r.open(polar.Recording{})

		for _, way := range []struct{ name, url string }{{"direct", engine.URL}, {"proxy", proxy.URL}, {"gateway", r.url}} {
			b.Run(fmt.Sprintf("%dKB/%s", kilobytes, way.name), func(b *testing.B) {
				b.ReportAllocs()
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					benchCall(b, r.client, way.url, body)
					took = append(took, time.Since(start))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			})
		}
	}
}

// whollyRead reads the body before it is passed on. An engine that answers at
// once otherwise makes the server close a body that the proxy still reads.
func whollyRead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func benchCall(b *testing.B, client *http.Client, root, body string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), "POST", root+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer s1")
	resp, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || n < 1000 {
		b.Fatal(resp.Status, n, err)
	}
}
