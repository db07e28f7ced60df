package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"polar"
	"polar/backend"
	"polar/gateway"
	"polar/llm"
	"polar/protocol/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a gateway on a real socket before a scripted engine.
type rig struct {
	t       testing.TB
	gateway *gateway.Gateway
	url     string
	client  *http.Client
	mu      sync.Mutex
	logs    map[polar.SessionID]*memLog
	// newLog, if set, makes the logs.
	newLog func() *memLog
}

func newRig(tb testing.TB, engine http.HandlerFunc, change func(*rig, *gateway.Config)) *rig {
	tb.Helper()
	upstream := httptest.NewServer(engine)
	tb.Cleanup(upstream.Close)
	vllm, err := backend.NewVLLM(backend.VLLMConfig{URL: upstream.URL, BackoffSeconds: 0.0001})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = vllm.Close() })
	r := &rig{t: tb, logs: map[polar.SessionID]*memLog{}, newLog: func() *memLog { return &memLog{} }}
	c := gateway.Config{
		Protocols: []gateway.Protocol{chat.Protocol{}}, Backend: vllm, OpenLog: r.openLog,
		Log: slog.New(slog.DiscardHandler), URL: "http://gateway.test/",
	}
	if change != nil {
		change(r, &c)
	}
	if r.gateway, err = gateway.New(c); err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(r.gateway)
	tb.Cleanup(server.Close)
	r.url = server.URL
	r.client = server.Client()
	return r
}

func (r *rig) openLog(id polar.SessionID, _ int) (gateway.SessionLog, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logs[id] == nil {
		r.logs[id] = r.newLog()
	}
	return r.logs[id], nil
}

func (r *rig) log(id polar.SessionID) *memLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs[id]
}

// open opens a session whose key is its id.
func (r *rig) open(rec polar.Recording) {
	r.t.Helper()
	if rec.Session == "" {
		rec.Session = "s1"
	}
	rec.Key = string(rec.Session)
	if _, err := r.gateway.Open(r.t.Context(), rec); err != nil {
		r.t.Fatal(err)
	}
}

// post sends a chat call as session s1 and reads the whole answer.
func (r *rig) post(body string) (int, string) {
	r.t.Helper()
	return r.do("POST", "/v1/chat/completions", body, "Authorization", "Bearer s1")
}

func (r *rig) do(method, path, body string, headers ...string) (int, string) {
	r.t.Helper()
	resp := r.start(r.t.Context(), method, path, body, headers...)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Errorf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(data)
}

func (r *rig) start(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// calls closes session s1 and returns what was recorded.
func (r *rig) calls() []polar.Call {
	r.t.Helper()
	calls, err := r.gateway.Close(r.t.Context(), "s1")
	if err != nil {
		r.t.Error(err)
	}
	return calls
}

const (
	hello       = `{"model":"asked","messages":[{"role":"user","content":"hello"}]}`
	helloStream = `{"model":"asked","messages":[{"role":"user","content":"hello"}],"stream":true}`
)

// chunk is an event of the engine with one token.
func chunk(text string, id int) string {
	return fmt.Sprintf(`data: {"model":"served","choices":[{"index":0,"delta":{"content":%q},"logprobs":{"content":[{"logprob":-0.5}]},"token_ids":[%d]}]}`+"\n\n", text, id)
}

const (
	prompt = `data: {"model":"served","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[1,2,3]}` + "\n\n"
	finish = `data: {"model":"served","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	done   = "data: [DONE]\n\n"
)

func usage(completion int) string {
	return fmt.Sprintf(`data: {"model":"served","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":%d}}`+"\n\n", completion)
}

// says is an engine that always gives the same answer.
func says(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

var whole = []string{prompt, chunk("Hel", 10), chunk("lo", 11), finish, usage(2), done}

// memLog is a SessionLog in memory.
type memLog struct {
	mu     sync.Mutex
	calls  []polar.Call
	closed bool
	// fail makes Append and SetDelivered fail.
	fail error
	// appending, if set, is sent each call before it is stored, and Append goes
	// on once it is taken.
	appending chan polar.Call
	// pause, if set, is waited for before a call is stored.
	pause chan struct{}
}

func (l *memLog) Append(_ context.Context, call *polar.Call, promptIDs llm.IDs) error {
	if l.appending != nil {
		l.appending <- *call
	}
	if l.pause != nil {
		<-l.pause
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	if promptIDs != nil {
		call.Prompt = polar.NewPrompt(nil, 0, promptIDs)
	}
	l.calls = append(l.calls, *call)
	return nil
}

func (l *memLog) SetDelivered(id polar.CallID, delivered bool, retries int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.calls {
		if l.calls[i].ID == id {
			l.calls[i].Delivered, l.calls[i].Retries = delivered, retries
			return l.fail
		}
	}
	return fmt.Errorf("no call %s", id)
}

func (l *memLog) Calls() ([]polar.Call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]polar.Call(nil), l.calls...), nil
}

func (l *memLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// lines reads a stream event by event.
func lines(body io.Reader) func() string {
	s := bufio.NewScanner(body)
	return func() string {
		for s.Scan() {
			if s.Text() != "" {
				return s.Text()
			}
		}
		return ""
	}
}

// errorOf reads OpenAI's error body.
func errorOf(tb testing.TB, body string) (message, code, param string) {
	tb.Helper()
	var e struct {
		Error struct{ Message, Code, Param string }
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&e); err != nil {
		tb.Errorf("not an error body: %s", body)
	}
	return e.Error.Message, e.Error.Code, e.Error.Param
}
