package gateway_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/gateway"
	"polar/llm"
)

func TestASilentEngine(t *testing.T) {
	t.Parallel()
	down := llm.Errorf(llm.EngineFailed, "down")
	late := []time.Duration{12 * time.Second, time.Second}
	tests := map[string]struct {
		engine *slow
		body   string
		change func(*gateway.Config)
		status int
		want   string
	}{
		"streamed":                    {&slow{waits: late}, helloStream, nil, 200, "alive\nalive\n0\n1 stop\ncall-000001 8s"},
		"streamed, with less":         {&slow{waits: late}, helloStream, func(c *gateway.Config) { c.KeepAlive = 10 * time.Second }, 200, "alive\n0\n1 stop\ncall-000001 3s"},
		"unstreamed":                  {&slow{waits: late}, hello, nil, 200, "0\n1 stop\ncall-000001 1s"},
		"that fails soon":             {&slow{waits: []time.Duration{time.Second}, fail: down}, helloStream, nil, 503, `{"error":{"message":"down","type":"server_error","param":null,"code":"engine_failed"}}`},
		"that fails late":             {&slow{waits: []time.Duration{6 * time.Second}, fail: down}, helloStream, nil, 200, "alive\nerror: down"},
		"that fails late, unstreamed": {&slow{waits: []time.Duration{6 * time.Second}, fail: down}, hello, nil, 503, `{"error":{"message":"down","type":"server_error","param":null,"code":"engine_failed"}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, tc.engine, tc.change)
				status, body := b.request(t.Context(), "POST", callPath, tc.body)
				if diff := cmp.Diff(tc.want, body); diff != "" || status != tc.status {
					t.Errorf("%d (-want +got)\n%s", status, diff)
				}
				calls := b.calls()
				if len(calls) != 1 || (calls[0].Error != nil) != (tc.engine.fail != nil) || calls[0].Delivered == (tc.engine.fail != nil) {
					t.Fatalf("recorded %+v", calls)
				}
				if tc.engine.fail == nil && string(calls[0].Reply) != `{"role":"assistant","content":"01"}` {
					t.Errorf("recorded %s", calls[0].Reply)
				}
			})
		})
	}
}

func TestAnAnswerGoesOnForWhoJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := &slow{waits: []time.Duration{time.Second, time.Second, time.Second}}
		b := newBubble(t, engine, nil)
		ctx, leave := context.WithCancel(t.Context())
		first := b.ask(ctx, callPath, helloStream)
		synctest.Wait()
		second := b.ask(t.Context(), callPath, hello, marked...)
		<-time.After(1500 * time.Millisecond)
		leave()
		synctest.Wait()
		// The first is gone, so it needs no mark to be known for a retry.
		third := b.ask(t.Context(), callPath, helloStream)
		<-first
		if diff := cmp.Diff([]string{"0\n1\n2 stop\ncall-000001 2s", "0\n1\n2 stop\ncall-000001 1.5s"}, []string{<-second, <-third}); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		calls := b.calls()
		if engine.asked.Load() != 1 || len(calls) != 1 || calls[0].Retries != 2 || !calls[0].Delivered || len(calls[0].Sampled) != 3 {
			t.Errorf("asked %d times, recorded %+v", engine.asked.Load(), calls)
		}
	})
}

func TestAJoinedCallEndsWithItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &slow{waits: []time.Duration{time.Second, time.Hour}}, nil)
		first := b.ask(t.Context(), callPath, helloStream)
		synctest.Wait()
		second := b.ask(t.Context(), callPath, helloStream, marked...)
		<-time.After(2 * time.Second)
		calls := b.calls()
		for _, answer := range []<-chan string{first, second} {
			if body := <-answer; body != "0\nerror: the session has ended" {
				t.Errorf("got %q", body)
			}
		}
		if len(calls) != 1 || calls[0].Error.Kind != llm.SessionEnded || calls[0].Retries != 1 || calls[0].Delivered {
			t.Errorf("recorded %+v", calls)
		}
	})
}
