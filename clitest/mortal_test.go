package clitest_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// mortal stands before an engine and makes it die in the middle of the first
// answer to a tool result: from then on every connection breaks. One that
// returns lives on when a conversation is begun anew, and dies no more.
func mortal(t *testing.T, engine string, returns bool) string {
	t.Helper()
	target, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu         sync.Mutex
		dead, over bool
	)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answersTool := bytes.Contains(body, []byte(`"role":"tool"`))
		mu.Lock()
		dies := answersTool && !dead && !over
		if dies {
			dead = true
		} else if dead && returns && r.Method == http.MethodPost && !answersTool {
			dead, over = false, true
		}
		broken := dead && !dies
		mu.Unlock()
		if broken {
			panic(http.ErrAbortHandler)
		}
		if dies {
			w = dyingWriter{w}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// dyingWriter breaks the connection in the middle of what is written first.
type dyingWriter struct{ http.ResponseWriter }

func (w dyingWriter) Write(p []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(p[:len(p)/2])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}
