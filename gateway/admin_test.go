package gateway_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"polar/gateway"
	"polar/llm"
)

const (
	statusPath = "/admin/inference/status"
	pausePath  = "/admin/inference/pause"
	resumePath = "/admin/inference/resume"
)

func named(c *gateway.Config) { c.Engine = llm.Engine{Kind: "vllm", URL: "http://engine"} }

func (b *bubble) expect(method, path, body string, status int, said string) {
	b.t.Helper()
	if code, got := b.request(b.t.Context(), method, path, body); code != status || !strings.Contains(got, said) {
		b.t.Errorf("%s %s: %d %s", method, path, code, got)
	}
}

func TestAPauseWaitsAndHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &slow{waits: []time.Duration{3 * time.Second, time.Second}}, named)
		b.expect("GET", statusPath, "", 200, `{"paused":false,"inflight":0,"held":0,"base_url":"http://engine","engine":"vllm"}`)
		start := time.Now()
		running := b.ask(t.Context(), callPath, helloStream)
		synctest.Wait()
		b.expect("POST", pausePath+"?timeout_seconds=60", "", 200, `"paused":true,"inflight":0`)
		if took := time.Since(start); took != 4*time.Second || !strings.Contains(<-running, "1 stop") {
			t.Errorf("the pause took %v", took)
		}
		held := b.ask(t.Context(), callPath, helloStream)
		synctest.Wait()
		heldToo := b.ask(t.Context(), callPath, hello)
		<-time.After(8 * time.Second)
		b.expect("GET", statusPath, "", 200, `"paused":true,"inflight":0,"held":2`)
		if got := b.gateway.Held("s1"); got != 8*time.Second {
			t.Errorf("held for %v so far", got)
		}
		b.expect("POST", pausePath, "", 200, `"paused":true`)
		b.expect("POST", resumePath+"?version=v2", "", 200, `"paused":false,"inflight":0,"held":2,"base_url":"http://engine","engine":"vllm","policy_version":"v2"`)
		if got := <-held; got != "alive\nalive\n0\n1 stop\ncall-000002 7s" {
			t.Errorf("the held stream was given %q", got)
		}
		if got := <-heldToo; got != "0\n1 stop\ncall-000003 1s" {
			t.Errorf("the held call was given %q", got)
		}
		b.expect("POST", resumePath, `{"version":"v3"}`, 200, `"policy_version":"v3"`)
		if got := b.gateway.Held("s1"); got != 8*time.Second {
			t.Errorf("held for %v", got)
		}
		calls := b.calls()
		for i, want := range []struct {
			held    int64
			version string
		}{{0, "v1"}, {8000, "v2"}, {8000, "v2"}} {
			if calls[i].HeldMS != want.held || calls[i].Version != want.version || !calls[i].Delivered {
				t.Errorf("call %d: %+v", i, calls[i])
			}
		}
		if b.gateway.Held("s1") != 0 {
			t.Error("a session that is gone is held")
		}
	})
}

func TestAPauseThatTakesTooLongIsRolledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &slow{waits: []time.Duration{time.Minute}}, named)
		running := b.ask(t.Context(), callPath, helloStream)
		synctest.Wait()
		pause := b.ask(t.Context(), pausePath+"?timeout_seconds=2.5", "")
		<-time.After(time.Second)
		held := b.ask(t.Context(), callPath, helloStream)
		other := b.ask(t.Context(), pausePath+"?timeout_seconds=1", "") // does not get its turn
		if got := <-other; !strings.Contains(got, "calls are in flight after 1s; inference goes on") {
			t.Errorf("the other pause was told %s", got)
		}
		b.expect("GET", statusPath, "", 200, `"paused":true,"inflight":1,"held":1`)
		if got := <-pause; !strings.Contains(got, "calls are in flight after 2.5s; inference goes on") {
			t.Errorf("the pause was told %s", got)
		}
		synctest.Wait()
		b.expect("GET", statusPath, "", 200, `"paused":false,"inflight":2`)
		for _, answer := range []<-chan string{running, held} {
			if got := <-answer; !strings.Contains(got, "0 stop") {
				t.Errorf("a call was given %q", got)
			}
		}
		if calls := b.calls(); len(calls) != 2 || calls[1].HeldMS != 1500 {
			t.Errorf("recorded %+v", calls)
		}
	})
}

func TestAPauseThatIsCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &slow{waits: []time.Duration{time.Minute}}, named)
		running := b.ask(t.Context(), callPath, helloStream)
		synctest.Wait()
		pause := b.ask(t.Context(), pausePath, "")
		synctest.Wait()
		b.expect("POST", resumePath, "", 200, `"paused":false`)
		if got := <-pause; !strings.Contains(got, "resumed meanwhile") {
			t.Errorf("the pause was told %s", got)
		}
		ctx, leave := context.WithCancel(t.Context())
		pause = b.ask(ctx, pausePath, "")
		synctest.Wait()
		b.expect("GET", statusPath, "", 200, `"paused":true,"inflight":1`)
		leave()
		<-pause
		b.expect("GET", statusPath, "", 200, `"paused":false,"inflight":1`)
		<-running

		b.expect("POST", pausePath, "", 200, `"paused":true`)
		ctx, leave = context.WithCancel(t.Context())
		held := b.ask(ctx, callPath, helloStream)
		synctest.Wait()
		leave()
		<-held
		b.expect("GET", statusPath, "", 200, `"paused":true,"inflight":0,"held":0`)
		if calls := b.calls(); len(calls) != 2 || calls[1].Delivered || calls[1].Error != nil || calls[1].Finish != "" {
			t.Errorf("recorded %+v", calls)
		}
	})
}

func TestAdminRequestsAreChecked(t *testing.T) {
	t.Parallel()
	b := newBubble(t, &slow{}, func(c *gateway.Config) { c.ControlToken = "secret" })
	for _, tc := range []struct {
		method, path, body string
		status             int
		said               string
	}{
		{"POST", pausePath + "?timeout_seconds=soon", "", 400, `"field":"timeout_seconds"`},
		{"POST", pausePath + "?timeout_seconds=-1", "", 400, `"field":"timeout_seconds"`},
		{"POST", pausePath + "?timeout_seconds=NaN", "", 400, `"field":"timeout_seconds"`},
		{"POST", resumePath, `{"verson":"x"}`, 400, "verson"},
		{"POST", resumePath, `{`, 400, "not valid JSON"},
		{"GET", statusPath, "", 200, `"paused":false`},
	} {
		if status, body := b.request(t.Context(), tc.method, tc.path, tc.body, "Authorization", "Bearer secret"); status != tc.status || !strings.Contains(body, tc.said) {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, status, body)
		}
		if status, _ := b.request(t.Context(), tc.method, tc.path, tc.body); status != 401 {
			t.Errorf("%s %s without the token: %d", tc.method, tc.path, status)
		}
	}
}
