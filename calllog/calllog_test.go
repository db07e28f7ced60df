package calllog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"polar"
	"polar/calllog"
	"polar/llm"
	"polar/rawjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testingT is what *testing.T, *testing.B and *rapid.T have in common.
type testingT interface {
	Helper()
	Fatal(args ...any)
}

// start opens a log, which stop closes.
func start(t testingT, c calllog.Config) (l *calllog.Log, stop func()) {
	t.Helper()
	l, err := calllog.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return l, func() {
		t.Helper()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func begin(t testingT, l *calllog.Log, id polar.SessionID, attempt int) *calllog.Session {
	t.Helper()
	s, err := l.Session(id, attempt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// diffCalls compares calls as whole prompts, and logprobs bit by bit.
func diffCalls(want, got []polar.Call) string {
	return cmp.Diff(want, got,
		cmp.Comparer(func(a, b *polar.Prompt) bool {
			return (a == nil) == (b == nil) && slices.Equal(a.IDs(), b.IDs())
		}),
		cmp.Comparer(func(a, b llm.Token) bool {
			return a.ID == b.ID && math.Float32bits(a.Logprob) == math.Float32bits(b.Logprob)
		}),
		cmp.Comparer(func(a, b json.RawMessage) bool { return (a == nil) == (b == nil) && string(a) == string(b) }))
}

// drawCalls makes calls whose prompts, messages and tools begin as earlier ones
// do, or not.
func drawCalls(t *rapid.T) (calls []polar.Call, prompts []llm.IDs) {
	few := rapid.Int32Range(0, 1)
	ids := rapid.SliceOfN(rapid.OneOf(few, few, few, rapid.Int32()), 0, 6)
	raw := rapid.SampledFrom([]json.RawMessage{
		json.RawMessage(`{"role":"user","content":"<a> & b"}`), json.RawMessage(`{ "role" : "user" }`),
		json.RawMessage(`{"role":"assistant","content":"ünï"}`), json.RawMessage(`1`),
	})
	for i := range rapid.IntRange(0, 8).Draw(t, "calls") {
		c := polar.Call{
			ID: polar.CallID(fmt.Sprint("call-", i)), Session: "s", Attempt: 1, Wire: "chat",
			Start: time.Unix(int64(i), 7).UTC(), End: time.Unix(int64(i), 9).UTC(),
			Delivered: rapid.Bool().Draw(t, "delivered"), Finish: rapid.SampledFrom([]string{"", "stop", "length"}).Draw(t, "finish"),
			Usage: llm.Usage{PromptTokens: i}, Version: rapid.String().Draw(t, "version"),
			Messages: rapid.SliceOfN(raw, 0, 3).Draw(t, "messages"),
			Tools:    rapid.SliceOfN(raw, 0, 2).Draw(t, "tools"),
		}
		if rapid.Bool().Draw(t, "has headers") {
			c.Headers = rapid.MapOfN(rapid.String(), rapid.String(), 1, 2).Draw(t, "headers")
		}
		prompt := llm.IDs(ids.Draw(t, "ids"))
		if i > 0 {
			j := rapid.IntRange(0, i-1).Draw(t, "base")
			prompt = slices.Concat(prompts[j][:rapid.IntRange(0, len(prompts[j])).Draw(t, "keep")], prompt)
			c.Messages = slices.Concat(calls[j].Messages[:rapid.IntRange(0, len(calls[j].Messages)).Draw(t, "kept messages")], c.Messages)
		}
		for range rapid.IntRange(0, 4).Draw(t, "sampled") {
			c.Sampled = append(c.Sampled, llm.Token{ID: rapid.Int32().Draw(t, "id"), Logprob: math.Float32frombits(rapid.Uint32().Draw(t, "bits"))})
		}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			c.Reply = json.RawMessage(`{"role":"assistant", "content":"<&>"}`)
		case 1:
			c.Error = &polar.CallError{Kind: llm.EngineFailed, Status: 503, Message: "gone <away>"}
		case 2:
			prompt = nil
		case 3:
			c.Sampling.ChatTemplateKwargs = rawjson.Object{{Key: "a", Value: json.RawMessage(`[1, "<"]`)}}
			c.Sampling.Temperature = new(float64)
		}
		if prompt != nil {
			c.Prompt = polar.NewPrompt(nil, 0, prompt)
		}
		calls, prompts = append(calls, c), append(prompts, prompt)
	}
	return calls, prompts
}

func TestCallsComeBackAsTheyWereAppended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, stop := start(t, calllog.Config{Dir: dir, JournalBytes: 64 << 10})
	defer stop()
	attempt := 0
	rapid.Check(t, func(t *rapid.T) {
		attempt++
		want, prompts := drawCalls(t)
		s := begin(t, l, "s", attempt)
		for i := range want {
			c := want[i]
			c.Prompt = nil
			if err := s.Append(context.Background(), &c, prompts[i]); err != nil {
				t.Fatal(err)
			}
			if diff := diffCalls(want[i:i+1], []polar.Call{c}); diff != "" {
				t.Fatalf("Append changed the call: %s", diff)
			}
			if rapid.Bool().Draw(t, "set delivered") {
				want[i].Delivered = rapid.Bool().Draw(t, "to")
				want[i].Retries = rapid.IntRange(0, 300).Draw(t, "retries")
				if err := s.SetDelivered(want[i].ID, want[i].Delivered, want[i].Retries); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := s.Calls()
		if diff := diffCalls(want, got); diff != "" || err != nil {
			t.Fatalf("%v %s", err, diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		got, err = calllog.Read(dir, "s", attempt)
		if diff := diffCalls(want, got); diff != "" || err != nil {
			t.Fatalf("after Close: %v %s", err, diff)
		}
	})
}

// TestPromptsAndMessagesBranch has lists that part from every place where an
// earlier one ended or parted.
func TestPromptsAndMessagesBranch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, stop := start(t, calllog.Config{Dir: dir})
	defer stop()
	s := begin(t, l, "s", 1)
	var want []polar.Call
	for i, ids := range []llm.IDs{{1}, {2, 3, 4}, {2, 3, 5}, {2, 3, 6}, {2, 3}, {2, 3, 4, 7}, {2, 8}, {}, nil, {1}, {2, 3, 6, 1}, {2, 3, 6, 2}} {
		c := polar.Call{ID: polar.CallID(fmt.Sprint(i))}
		if ids != nil {
			c.Prompt, c.Messages = polar.NewPrompt(nil, 0, ids), []json.RawMessage{}
		}
		for _, id := range ids {
			c.Messages = append(c.Messages, json.RawMessage(fmt.Sprint(id)))
		}
		want = append(want, c)
		if err := s.Append(t.Context(), &c, ids); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Calls()
	if diff := diffCalls(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// turn is call n of a conversation that grows by grow tokens and two messages a
// turn.
func turn(session polar.SessionID, n, grow int) (polar.Call, llm.IDs) {
	ids := make(llm.IDs, (n+1)*grow)
	for i := range ids {
		ids[i] = int32(i*7919) % 150000
	}
	c := polar.Call{ID: polar.CallID(fmt.Sprint("call-", n)), Session: session, Attempt: 1, Delivered: true, Finish: "stop"}
	for i := range 2*n + 1 {
		c.Messages = append(c.Messages, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"message %d of %s"}`, i, session)))
	}
	c.Reply = json.RawMessage(`{"role":"assistant","content":"yes"}`)
	c.Sampled = []llm.Token{{ID: 5, Logprob: -0.5}, {ID: 6, Logprob: llm.NoLogprob()}}
	return c, ids
}

func TestManySessionsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, stop := start(t, calllog.Config{Dir: dir, JournalBytes: 32 << 10})
	const sessions, turns = 12, 15
	var all sync.WaitGroup
	for k := range sessions {
		id := polar.SessionID(fmt.Sprint("s", k))
		s := begin(t, l, id, 1)
		for n := range turns { // the calls of one session overlap, too
			all.Go(func() {
				c, ids := turn(id, n, 20)
				if err := s.Append(t.Context(), &c, ids); err != nil {
					t.Error(err)
				}
				if err := s.SetDelivered(c.ID, n%2 == 0, 0); err != nil {
					t.Error(err)
				}
				if _, err := s.Calls(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	stop()
	for k := range sessions {
		id := polar.SessionID(fmt.Sprint("s", k))
		got, err := calllog.Read(dir, id, 1)
		if err != nil || len(got) != turns {
			t.Fatalf("%s: %d calls, %v", id, len(got), err)
		}
		for _, c := range got {
			var n int
			if _, err := fmt.Sscanf(string(c.ID), "call-%d", &n); err != nil {
				t.Fatal(err)
			}
			want, ids := turn(id, n, 20)
			want.Prompt, want.Delivered = polar.NewPrompt(nil, 0, ids), n%2 == 0
			if diff := diffCalls([]polar.Call{want}, []polar.Call{c}); diff != "" {
				t.Fatal(diff)
			}
		}
	}
}

func TestAnAttemptIsWrittenOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, stop := start(t, calllog.Config{Dir: dir})
	defer stop()
	for _, attempt := range []int{2, 1, 10} {
		if err := begin(t, l, "s", attempt).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Session("s", 2); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second session of the same attempt: %v", err)
	}
	for _, bad := range []polar.SessionID{"", "..", "../s", "a/b", "_journal"} {
		if _, err := l.Session(bad, 1); err == nil {
			t.Errorf("session %q was begun", bad)
		}
		if _, err := calllog.Read(dir, bad, 1); err == nil {
			t.Errorf("session %q was read", bad)
		}
	}
	got, err := calllog.Attempts(dir, "s")
	if diff := cmp.Diff([]int{1, 2, 10}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if got, err := calllog.Attempts(dir, "unknown"); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if _, err := calllog.Read(dir, "s", 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an attempt that was not made: %v", err)
	}
}

func TestAFolderHasOneLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, stop := start(t, calllog.Config{Dir: dir})
	if l, err := calllog.Open(calllog.Config{Dir: dir}); err == nil {
		t.Error("a second log opened the same folder")
		_ = l.Close()
	}
	stop()
	_, stop = start(t, calllog.Config{Dir: dir})
	stop()
}

func TestWhatComesTooLateIsRefused(t *testing.T) {
	t.Parallel()
	l, stop := start(t, calllog.Config{Dir: t.TempDir()})
	s := begin(t, l, "s", 1)
	c, ids := turn("s", 0, 5)
	if err := s.Append(t.Context(), &c, ids); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), &c, ids); err == nil {
		t.Error("a call was recorded twice")
	}
	if err := s.SetDelivered("unknown", true, 0); err == nil {
		t.Error("a call that is not recorded was marked")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late, ids := turn("s", 1, 5)
	if err := s.Append(ctx, &late, ids); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that had ended: %v", err)
	}
	stop()
	if err := s.Append(t.Context(), &late, ids); !errors.Is(err, calllog.ErrClosed) {
		t.Errorf("after the end of Run: %v", err)
	}
	if _, err := l.Session("s", 2); !errors.Is(err, calllog.ErrClosed) {
		t.Errorf("a session after the end of Run: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Append(t.Context(), &late, ids); err == nil {
		t.Error("a closed session took a call")
	}
	got, err := s.Calls()
	if err != nil || len(got) != 1 {
		t.Errorf("%d calls, %v", len(got), err)
	}
}

func TestTheEndOfADamagedFileIsCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, stop := start(t, calllog.Config{Dir: dir})
	s := begin(t, l, "s", 1)
	var ends []int64
	path := filepath.Join(dir, "s", "1.log")
	for n := range 2 {
		c, ids := turn("s", n, 5)
		if err := s.Append(t.Context(), &c, ids); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, info.Size())
	}
	stop()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0x40
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for want < len(ends) && ends[want] <= int64(at) {
			want++
		}
		if got, err := calllog.Read(dir, "s", 1); err != nil || len(got) != want {
			t.Fatalf("damage at %d: %d calls and %v, want %d", at, len(got), err, want)
		}
		if cut, err := calllog.Torn(dir, "s", 1); err != nil || cut == 0 {
			t.Fatalf("damage at %d: %d bytes cut, %v", at, cut, err)
		}
	}
}

// TestMemoryGrowsWithNewTokensOnly has a session of 200 turns that grows to a
// context of 100,000 tokens and 400 messages of 1 KB.
func TestMemoryGrowsWithNewTokensOnly(t *testing.T) {
	const turns, grow = 200, 500
	dir := t.TempDir()
	l, stop := start(t, calllog.Config{Dir: dir})
	defer stop()
	s := begin(t, l, "s", 1)
	body := make([]byte, 1000)
	for i := range body {
		body[i] = 'x'
	}
	_, prompt := turn("s", turns-1, grow)
	messages := make([]json.RawMessage, 2*turns)
	for i := range messages {
		messages[i] = fmt.Appendf(nil, `{"role":"user","content":"%d %s"}`, i, body)
	}
	before := heap()
	for n := range turns {
		c, _ := turn("s", 0, 0)
		c.ID, c.Messages = polar.CallID(fmt.Sprint(n)), messages[:2*n+1]
		if err := s.Append(t.Context(), &c, prompt[:(n+1)*grow]); err != nil {
			t.Fatal(err)
		}
	}
	perToken := float64(heap()-before) / (turns * grow)
	info, err := os.Stat(filepath.Join(dir, "s", "1.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f bytes in memory per distinct token, %d KB on disk", perToken, info.Size()>>10)
	if perToken > 8 {
		t.Errorf("%.1f bytes in memory per distinct token, want at most 8", perToken)
	}
	if limit := int64(turns*grow*4 + turns*2*(len(body)+100) + turns*600); info.Size() > limit {
		t.Errorf("%d bytes on disk, want at most %d", info.Size(), limit)
	}
	calls, err := s.Calls()
	if err != nil || len(calls) != turns || calls[turns-1].Prompt.Len() != turns*grow || len(calls[turns-1].Messages) != 2*turns-1 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
	runtime.KeepAlive(prompt)
	runtime.KeepAlive(messages)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
