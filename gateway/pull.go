package gateway

import (
	"fmt"
	"iter"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"polar/llm"
)

// pullAhead is how many events may wait for a harness that reads slowly.
const pullAhead = 8

// puller hands out a range event by event, with a sign of life whenever
// nothing came for a while. The range runs in a goroutine of its own, which
// has ended when stop returns.
type puller struct {
	running sync.WaitGroup
	items   chan item
	left    chan struct{} // closed when nobody wants more
	abort   func()        // makes the range end if it waits for something
	every   time.Duration

	last    time.Time // of the last thing handed out
	timer   *time.Timer
	stopped bool
}

type item struct {
	event llm.Event
	err   error
	fault any // what the range panicked with
}

// pullAlive is iter.Pull2 for a harness that must not take silence for death.
// abort is called by stop if the range has not ended by then.
func pullAlive(events iter.Seq2[llm.Event, error], every time.Duration, abort func()) (next func() (llm.Event, error, bool), stop func()) {
	p := &puller{
		items: make(chan item, pullAhead), left: make(chan struct{}),
		abort: abort, every: every, last: time.Now(),
	}
	p.running.Go(func() { p.run(events) })
	return p.next, p.stop
}

func (p *puller) run(events iter.Seq2[llm.Event, error]) {
	defer close(p.items)
	defer func() {
		if fault := recover(); fault != nil {
			p.put(item{fault: withStack(fault)})
		}
	}()
	for e, err := range events {
		if !p.put(item{event: e, err: err}) {
			return
		}
	}
}

// withStack keeps where a panic was, which is lost when it goes on elsewhere.
func withStack(fault any) any {
	if fault == http.ErrAbortHandler { //nolint:errorlint // it is panicked with as it is
		return fault
	}
	return fmt.Sprintf("%v\n%s", fault, debug.Stack())
}

func (p *puller) put(it item) bool {
	select {
	case p.items <- it:
		return true
	default:
	}
	select {
	case p.items <- it:
		return true
	case <-p.left:
		return false
	}
}

func (p *puller) next() (llm.Event, error, bool) {
	select {
	case it, ok := <-p.items:
		return p.hand(it, ok)
	default:
	}
	if p.timer == nil {
		p.timer = time.NewTimer(p.every)
	}
	for {
		select {
		case it, ok := <-p.items:
			return p.hand(it, ok)
		case <-p.timer.C: // set for the silence after some earlier event
			wait := p.every - time.Since(p.last)
			if wait > 0 {
				p.timer.Reset(wait)
				continue
			}
			p.last = time.Now()
			p.timer.Reset(p.every)
			return llm.Event{KeepAlive: true}, nil, true
		}
	}
}

func (p *puller) hand(it item, ok bool) (llm.Event, error, bool) {
	if it.fault != nil {
		panic(it.fault)
	}
	p.last = time.Now()
	return it.event, it.err, ok
}

func (p *puller) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
	close(p.left)
	p.abort()
	p.running.Wait()
}
