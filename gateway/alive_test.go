package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// TestManyAskersOfOneQuestion lets askers of one question come and go at random
// times, some of them saying that they ask again. Each is given a whole answer
// or left by itself, and what is recorded adds up.
func TestManyAskersOfOneQuestion(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				engine := &slow{waits: []time.Duration{3 * time.Millisecond, 2 * time.Millisecond, 2 * time.Millisecond}}
				b := newBubble(t, engine, nil)
				const askers = 40
				var given atomic.Int32
				var all sync.WaitGroup
				for range askers {
					start, patience := time.Duration(rng.IntN(40))*time.Millisecond, time.Duration(1+rng.IntN(15))*time.Millisecond
					body, headers := hello, []string(nil)
					if rng.IntN(2) == 0 {
						body = helloStream
					}
					if rng.IntN(2) == 0 {
						headers = marked
					}
					all.Go(func() {
						<-time.After(start)
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						_, got := b.request(ctx, "POST", callPath, body, headers...)
						// One that joined late is given what was said before in one piece.
						if strings.HasPrefix(strings.ReplaceAll(got, "\n", ""), "012 stopcall") {
							given.Add(1)
						} else if ctx.Err() == nil {
							t.Errorf("an asker that stayed was given %q", got)
						}
					})
				}
				all.Wait()
				calls := b.calls()
				retries, delivered, complete := 0, 0, 0
				for _, c := range calls {
					retries += c.Retries
					if c.Delivered {
						delivered++
					}
					if c.Finish == llm.FinishStop {
						complete++
					}
					if c.Error != nil || len(c.Sampled) == 3 != (c.Finish == llm.FinishStop) {
						t.Errorf("recorded %+v", c)
					}
				}
				if len(calls) != int(engine.asked.Load()) || len(calls)+retries != askers {
					t.Errorf("%d askers: %d calls, %d retries, the engine was asked %d times", askers, len(calls), retries, engine.asked.Load())
				}
				if delivered > complete || int(given.Load()) < delivered {
					t.Errorf("%d answers complete, %d delivered, %d askers were given one", complete, delivered, given.Load())
				}
				if n := b.gateway.Stats().InFlight; n != 0 {
					t.Errorf("%d calls in flight", n)
				}
			})
		})
	}
}
