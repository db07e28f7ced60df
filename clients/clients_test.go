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

// trial is one client in one scenario, which asks for streams or does not.
type trial struct {
	*testing.T
	lab    *lab
	client client
	stream bool
}

// start begins a conversation with a service in a session of its own.
func (t trial) start(r *rig) *talk {
	t.Helper()
	return r.openSession(t.T).talk(t.T, t.client, endpoint{Stream: t.stream})
}

// said makes a text that no other test says, and that begins like a rule of
// the simulator.
func (t trial) said(text string) string { return text + " for " + t.Name() }

// try lets one client go through every scenario, streamed and not.
func (l *lab) try(t *testing.T, c client) {
	t.Helper()
	for name, stream := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, list := range []map[string]func(trial){scenarios(), failures()} {
				for name, run := range list {
					t.Run(name, func(t *testing.T) { run(trial{t, l, c, stream}) })
				}
			}
		})
	}
	for name, run := range streamScenarios() {
		t.Run("streamed "+name, func(t *testing.T) {
			t.Parallel()
			run(trial{t, l, c, true})
		})
	}
}
