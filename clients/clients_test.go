package clients_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// lab has a service for each way in which an engine can behave.
type lab struct {
	// talk answers at once, slow token by token, silent after a while.
	talk, slow, silent *rig
	// limited answers 429, broken 500, cut breaks off; behind down is nothing.
	limited, broken, cut, down *rig
	// large is held by who sends a body of many megabytes.
	large sync.Mutex
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{
		talk:    newRig(t, ""),
		slow:    newRig(t, "", "--tokens-per-second", "400"),
		silent:  newRig(t, fmt.Sprintf("faults: [{kind: slow, delay: 6s, calls: %s}]\n", afterProbe())),
		limited: newRig(t, "faults: [{kind: status, status: 429, retry_after: '7', every: 1}]\n"),
		broken:  newRig(t, "faults: [{kind: status, status: 500, every: 1}]\n"),
		cut:     newRig(t, "faults: [{kind: cut, after_tokens: 6, every: 1}]\n"),
		down:    serveBefore(t, "http://127.0.0.1:1"),
	}
	t.Cleanup(func() {
		for _, r := range []*rig{l.talk, l.slow, l.silent} {
			r.checkAllKnown(t)
		}
	})
	return l
}

// afterProbe lists the calls that come after the one by which the service tries
// its engine, so that it starts at once.
func afterProbe() string {
	list := []string{}
	for n := 2; n < 100; n++ {
		list = append(list, strconv.Itoa(n))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// TestClients lets every client go through every scenario.
func TestClients(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, c := range []client{openAIChat(), openAIResponses(), anthropicMessages(), googleGenAI()} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l.try(t, c)
		})
	}
	t.Run("npm", func(t *testing.T) {
		t.Parallel()
		for _, c := range npmClients(t) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				l.try(t, c)
			})
		}
	})
}

// try lets one client go through every scenario, streamed and not.
func (l *lab) try(t *testing.T, c client) {
	for name, stream := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, run := range scenarios() {
				t.Run(name, func(t *testing.T) { run(t, l, c, stream) })
			}
			if stream {
				for name, run := range streamScenarios() {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						run(t, l, c)
					})
				}
			}
			for name, run := range failures() {
				t.Run(name, func(t *testing.T) { run(t, l, c, stream) })
			}
		})
	}
}
