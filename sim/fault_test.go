package sim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/sim"
)

const wordy = "rules: [{say: one two three four five six seven eight}]\n"

// replied is what came of a call over a socket.
type replied struct {
	status int
	header http.Header
	data   string
	err    error
}

func post(ctx context.Context, t *testing.T, url, body string) replied {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+chatPath, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return replied{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	return replied{status: res.StatusCode, header: res.Header, data: string(data), err: err}
}

func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s.URL
}

func ended(s *sim.Server) (out []string) {
	for _, c := range s.Calls() {
		out = append(out, c.Ended)
	}
	return out
}

func TestEachFaultBreaksWhatItSays(t *testing.T) {
	t.Parallel()
	stream := request(hello, `"stream":true`)
	whole := request(hello, "")
	for name, c := range map[string]struct {
		fault, body string
		as          func(r replied) bool
		ended       string
		sent        int
	}{
		"an HTTP status": {`{kind: status, status: 429, retry_after: "7", calls: [1]}`, stream, func(r replied) bool {
			return r.err == nil && r.status == 429 && r.header.Get("Retry-After") == "7" && strings.Contains(r.data, `"code":429`)
		}, sim.EndRefused, 0},
		"a prompt that is refused": {`{kind: context, calls: [1]}`, stream, func(r replied) bool {
			return r.err == nil && r.status == 400 && strings.Contains(r.data, "This model's maximum context length is")
		}, sim.EndRefused, 0},
		"a connection that breaks at once": {`{kind: drop, calls: [1]}`, stream, func(r replied) bool {
			return r.err != nil && r.status == 0
		}, sim.EndDropped, 0},
		"a stream that breaks": {`{kind: cut, after_tokens: 3, calls: [1]}`, stream, func(r replied) bool {
			return r.err != nil && strings.Count(r.data, "data: ") == 4 && !strings.Contains(r.data, "[DONE]")
		}, sim.EndCut, 3},
		"a stream that breaks at its last token": {`{kind: cut, after_tokens: 1000, calls: [1]}`, stream, func(r replied) bool {
			return r.err != nil && !strings.Contains(r.data, `"finish_reason":"`)
		}, sim.EndCut, 15},
		"a whole answer that breaks": {`{kind: cut, calls: [1]}`, whole, func(r replied) bool {
			return r.err != nil && r.data != "" && !json.Valid([]byte(r.data))
		}, sim.EndCut, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, parse(t, wordy+"faults: ["+c.fault+"]\n"))
			url := listen(t, s)
			if r := post(t.Context(), t, url, c.body); !c.as(r) {
				t.Errorf("got %+v", r)
			}
			if r := post(t.Context(), t, url, c.body); r.err != nil || r.status != http.StatusOK {
				t.Errorf("the call after the fault: %+v", r)
			}
			if diff := cmp.Diff([]string{c.ended, sim.EndFinished}, ended(s)); diff != "" {
				t.Error(diff)
			}
			if got := s.Calls()[0].Sent; got != c.sent {
				t.Errorf("%d tokens sent, want %d", got, c.sent)
			}
		})
	}
}

func TestAFaultOfARuleHappensToTheCallsItAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault string
		want  []string
	}{
		"as often as it says": {`{kind: status, status: 500, times: 2}`, []string{sim.EndFinished, sim.EndRefused, sim.EndRefused, sim.EndFinished}},
		"every time":          {`{kind: context}`, []string{sim.EndFinished, sim.EndRefused, sim.EndRefused, sim.EndRefused}},
		"in the middle":       {`{kind: cut, after_tokens: 2, times: 1}`, []string{sim.EndFinished, sim.EndCut, sim.EndFinished, sim.EndFinished}},
		"at once":             {`{kind: drop, times: 1}`, []string{sim.EndFinished, sim.EndDropped, sim.EndFinished, sim.EndFinished}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, parse(t, "rules: [{when: {user: fragile}, say: one two three four, fault: "+c.fault+"}, {say: fine}]\n"))
			url := listen(t, s)
			for _, said := range []string{"firm", "fragile", "fragile", "fragile"} {
				post(t.Context(), t, url, `{"stream":true,"messages":[{"role":"user","content":"`+said+`"}]}`)
			}
			if diff := cmp.Diff(c.want, ended(s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheUsageOfARuleIsReported(t *testing.T) {
	t.Parallel()
	const body = `{"messages":[{"role":"user","content":"x"}],"return_token_ids":true`
	for name, more := range map[string]string{"whole": "", "streamed": `,"stream":true,"stream_options":{"include_usage":true}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := chat(t, start(t, parse(t, "rules: [{say: hm, usage: {prompt_tokens: 190000}}]")), body+more+"}")
			if diff := cmp.Diff(&usage{Prompt: 190000, Sampled: len(a.Tokens), Total: 190000 + len(a.Tokens)}, a.Usage); diff != "" {
				t.Error(diff)
			}
			if len(a.Prompt) >= 190000 {
				t.Errorf("the prompt really has %d tokens", len(a.Prompt))
			}
		})
	}
}

// TestTimeTakesItsCourse has no socket, so that time can be the bubble's own.
func TestTimeTakesItsCourse(t *testing.T) {
	t.Parallel()
	const tokens = 16 // of the wordy answer
	for name, c := range map[string]struct {
		settings string
		want     time.Duration
		whole    bool
	}{
		"as fast as it can":                {"", 0, false},
		"the first token and then a speed": {"ttft: 2s\ntokens_per_second: 10\n", 2*time.Second + (tokens-1)*100*time.Millisecond, false},
		"a whole answer takes as long":     {"ttft: 2s\ntokens_per_second: 10\n", 2*time.Second + (tokens-1)*100*time.Millisecond, true},
		"a slow call":                      {"faults: [{kind: slow, delay: 1m, every: 1}]\n", time.Minute, false},
		"a stall that ends":                {"faults: [{kind: stall, after_tokens: 2, delay: 1h, every: 1}]\n", time.Hour, false},
		"a stall of a whole answer":        {"faults: [{kind: stall, delay: 1h, every: 1}]\n", time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := parse(t, wordy+c.settings)
			synctest.Test(t, func(t *testing.T) {
				s := start(t, config)
				more := `"stream":true`
				if c.whole {
					more = ""
				}
				began := time.Now()
				a := chat(t, s, request(hello, more))
				if got := time.Since(began); got != c.want || len(a.Tokens) != tokens || a.Finish != "stop" {
					t.Errorf("took %v, want %v; %d tokens, finish %q", got, c.want, len(a.Tokens), a.Finish)
				}
			})
		})
	}
}

func TestAClientThatLeavesIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ settings, more string }{
		"before the first token":    {"ttft: 1h\n", `"stream":true`},
		"between two tokens":        {"tokens_per_second: 0.01\n", `"stream":true`},
		"during a stall":            {"faults: [{kind: stall, after_tokens: 1, every: 1}]\n", `"stream":true`},
		"waiting for a whole one":   {"ttft: 1h\n", ""},
		"in a stall of a whole one": {"faults: [{kind: stall, every: 1}]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, parse(t, wordy+c.settings))
			url := listen(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				if r := post(ctx, t, url, request(hello, c.more)); r.err == nil {
					t.Error("the call ended by itself")
				}
			})
			await(t, "the call is being answered", func() bool { calls := s.Calls(); return len(calls) == 1 && calls[0].PromptIDs != nil })
			cancel()
			wg.Wait()
			await(t, "the server notices", func() bool { return s.Calls()[0].Ended != sim.EndNotYet })
			if call := s.Calls()[0]; call.Ended != sim.EndAborted || call.Sent >= len(call.TokenIDs) || len(call.PromptIDs) == 0 {
				t.Errorf("recorded as %q with %d of %d tokens sent", call.Ended, call.Sent, len(call.TokenIDs))
			}
		})
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func TestFaultsComeWhenTheyShould(t *testing.T) {
	t.Parallel()
	run := func(faults string, n int) (out []int) {
		s := start(t, parse(t, wordy+"faults: "+faults+"\n"))
		for i := range n {
			if ask(t, s, chatPath, request(hello, "")).Code != http.StatusOK {
				out = append(out, i+1)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		faults string
		want   []int
	}{
		"every third":        {`[{kind: status, status: 500, every: 3}]`, []int{3, 6, 9}},
		"every third, twice": {`[{kind: status, status: 500, every: 3, times: 2}]`, []int{3, 6}},
		"by number":          {`[{kind: status, status: 500, calls: [2, 5]}]`, []int{2, 5}},
		"two faults":         {`[{kind: status, status: 500, calls: [1]}, {kind: status, status: 503, every: 4}]`, []int{1, 4, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, run(c.faults, 10)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("by chance", func(t *testing.T) {
		t.Parallel()
		const faults = `[{kind: status, status: 500, probability: 0.3}]`
		first := run(faults, 200)
		if len(first) < 30 || len(first) > 90 {
			t.Errorf("%d of 200 calls failed, want about 60", len(first))
		}
		if diff := cmp.Diff(first, run(faults, 200)); diff != "" {
			t.Errorf("a second start fails otherwise: %s", diff)
		}
	})
}

func TestOnlyTheLastCallsAreKept(t *testing.T) {
	t.Parallel()
	for keep, want := range map[int][]int{0: {}, 3: {3, 4, 5}, 100: {1, 2, 3, 4, 5}} {
		c := parse(t, wordy)
		c.KeepCalls = keep
		s := start(t, c)
		for range 5 {
			chat(t, s, request(hello, ""))
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sim/calls", nil))
		var got struct{ Calls []sim.Recorded }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		numbers := []int{}
		for _, c := range got.Calls {
			numbers = append(numbers, c.Number)
			if c.Text != "one two three four five six seven eight" || len(c.TokenIDs) != c.Sent || len(c.Logprobs) != c.Sent {
				t.Errorf("recorded %+v", c)
			}
		}
		if diff := cmp.Diff(want, numbers); diff != "" {
			t.Errorf("keeping %d: %s", keep, diff)
		}
	}
}
