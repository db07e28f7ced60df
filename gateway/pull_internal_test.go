package gateway

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/llm"
)

// paced yields an event after each wait.
func paced(waits ...time.Duration) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		for i, wait := range waits {
			<-time.After(wait)
			if !yield(llm.Event{Text: fmt.Sprint(i)}, nil) {
				return
			}
		}
	}
}

func TestSilenceShowsSignsOfLife(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		waits []time.Duration
		want  string
	}{
		"none in time":        {[]time.Duration{0, 4 * time.Second, 4 * time.Second}, "0@0s 1@4s 2@8s"},
		"before the first":    {[]time.Duration{12 * time.Second}, "alive@5s alive@10s 0@12s"},
		"in the middle":       {[]time.Duration{3 * time.Second, 6 * time.Second, time.Second}, "0@3s alive@8s 1@9s 2@10s"},
		"counted from last":   {[]time.Duration{0, 4 * time.Second, 6 * time.Second}, "0@0s 1@4s alive@9s 2@10s"},
		"before it just ends": {nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				next, stop := pullAlive(paced(tc.waits...), 5*time.Second, func() {})
				defer stop()
				var got []string
				for e, err, more := next(); more; e, err, more = next() {
					what := e.Text
					if e.KeepAlive {
						what = "alive"
					}
					if err != nil {
						t.Error(err)
					}
					got = append(got, fmt.Sprintf("%s@%v", what, time.Since(start)))
				}
				if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

func TestPullEndsWithItsRange(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	t.Run("an error is passed on", func(t *testing.T) {
		t.Parallel()
		next, stop := pullAlive(func(yield func(llm.Event, error) bool) { yield(llm.Event{}, broken) }, time.Second, func() {})
		defer stop()
		if _, err, more := next(); !more || !errors.Is(err, broken) {
			t.Errorf("got %v %v", err, more)
		}
		if _, err, more := next(); more || err != nil {
			t.Errorf("after the end %v %v", err, more)
		}
	})
	t.Run("a panic is the puller's", func(t *testing.T) {
		t.Parallel()
		next, stop := pullAlive(func(func(llm.Event, error) bool) { panic("boom") }, time.Second, func() {})
		defer stop()
		defer func() {
			if fault := fmt.Sprint(recover()); !strings.HasPrefix(fault, "boom\n") || !strings.Contains(fault, "pull_internal_test.go") {
				t.Errorf("panicked with %s", fault)
			}
		}()
		_, _, _ = next()
		t.Error("no panic")
	})
	t.Run("stop ends a range that waits and one that has too much to say", func(t *testing.T) {
		t.Parallel()
		aborted, ended := make(chan struct{}), 0
		waits := func(yield func(llm.Event, error) bool) {
			defer func() { ended++ }()
			_ = yield(llm.Event{}, nil)
			<-aborted
		}
		next, stop := pullAlive(waits, time.Second, func() { close(aborted) })
		_, _, _ = next()
		stop()
		stop()
		said := 0
		talks := func(yield func(llm.Event, error) bool) {
			defer func() { ended++ }()
			for yield(llm.Event{}, nil) {
				said++
			}
		}
		_, stop = pullAlive(talks, time.Second, func() {})
		stop()
		if ended != 2 || said > pullAhead {
			t.Errorf("%d ended, %d events were waiting", ended, said)
		}
	})
}

// BenchmarkPull is what handing an event over costs.
func BenchmarkPull(b *testing.B) {
	const events = 1000
	say := func(yield func(llm.Event, error) bool) {
		for range events {
			if !yield(llm.Event{Text: "a"}, nil) {
				return
			}
		}
	}
	for name, pull := range map[string]func() (func() (llm.Event, error, bool), func()){
		"Pull2": func() (func() (llm.Event, error, bool), func()) { return iter.Pull2(iter.Seq2[llm.Event, error](say)) },
		"alive": func() (func() (llm.Event, error, bool), func()) { return pullAlive(say, time.Hour, func() {}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				next, stop := pull()
				exhaust(next)
				stop()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
		})
	}
}
