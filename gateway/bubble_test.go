package gateway_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"polar"
	"polar/gateway"
	"polar/llm"
	"polar/protocol/chat"
)

// bubble is a gateway without sockets, for tests in fake time.
type bubble struct {
	t       *testing.T
	gateway *gateway.Gateway
	log     *memLog
}

// slow is an engine that waits before each event.
type slow struct {
	waits []time.Duration
	// fail, if set, ends the answer in the place of a Finish.
	fail  error
	asked atomic.Int32
}

func (b *slow) Generate(ctx context.Context, _ llm.Request) iter.Seq2[llm.Event, error] {
	b.asked.Add(1)
	return func(yield func(llm.Event, error) bool) {
		for i, wait := range b.waits {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				yield(llm.Event{}, context.Cause(ctx))
				return
			}
			e := llm.Event{Text: fmt.Sprint(i), Tokens: []llm.Token{{ID: int32(i)}}}
			if i == 0 {
				e.PromptIDs, e.Engine = llm.IDs{1, 2}, &llm.Engine{Kind: "slow"}
			}
			if i == len(b.waits)-1 {
				if b.fail != nil {
					yield(llm.Event{}, b.fail)
					return
				}
				e.Finish = llm.FinishStop
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func newBubble(t *testing.T, engine gateway.Backend, change func(*gateway.Config)) *bubble {
	t.Helper()
	b := &bubble{t: t, log: &memLog{}}
	c := gateway.Config{
		Protocols: []gateway.Protocol{telling{}}, Backend: engine, Log: slog.New(slog.DiscardHandler),
		OpenLog: func(polar.SessionID, int) (gateway.SessionLog, error) { return b.log, nil },
	}
	if change != nil {
		change(&c)
	}
	var err error
	if b.gateway, err = gateway.New(c); err != nil {
		t.Fatal(err)
	}
	if _, err := b.gateway.Open(t.Context(), polar.Recording{Session: "s1", Key: "s1", Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	return b
}

// request answers when ctx has ended or the answer is there.
func (b *bubble) request(ctx context.Context, method, path, body string, headers ...string) (int, string) {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.gateway.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// ask makes a request at the side and gives its answer when it is there.
func (b *bubble) ask(ctx context.Context, path, body string, headers ...string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		_, got := b.request(ctx, "POST", path, body, headers...)
		answer <- got
	}()
	return answer
}

func (b *bubble) calls() []polar.Call {
	b.t.Helper()
	calls, err := b.gateway.Close(b.t.Context(), "s1")
	if err != nil {
		b.t.Error(err)
	}
	return calls
}

// telling is a protocol that says which events it was given and when.
type telling struct{ chat.Protocol }

func (telling) Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error {
	start := time.Now()
	for e, err := range events {
		what := e.Text
		switch {
		case err != nil:
			fmt.Fprintf(w, "error: %v", err)
			return err
		case e.KeepAlive:
			what = "alive"
		case e.Finish != "":
			what += " " + e.Finish
		}
		if _, err := io.WriteString(w, what+"\n"); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "%s %v", req.ID, time.Since(start))
	return nil
}
