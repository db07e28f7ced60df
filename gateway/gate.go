package gateway

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errResumed is why a pause that waited for calls in flight came to nothing.
var errResumed = errors.New("inference was resumed meanwhile")

// gate holds calls back while the weights of the engine change.
type gate struct {
	// pausing has one place, for who waits for the calls in flight.
	pausing chan struct{}

	mu sync.Mutex
	// resumed is closed when the gate opens again; nil while it is open.
	resumed chan struct{}
	// drained is closed when nothing is in flight any more; nil if nobody waits.
	drained  chan struct{}
	inFlight int
	held     int
	version  string
}

func newGate() *gate { return &gate{pausing: make(chan struct{}, 1)} }

// gateStatus is what a gate does.
type gateStatus struct {
	paused         bool
	inFlight, held int
	version        string
}

func (g *gate) status() gateStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return gateStatus{paused: g.resumed != nil, inFlight: g.inFlight, held: g.held, version: g.version}
}

// enter waits until the gate is open, and says for how long it did and what
// version the weights have from then on, empty if nobody named one. watch
// runs meanwhile. Who entered leaves.
func (g *gate) enter(ctx context.Context, watch *stopwatch) (held time.Duration, version string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil {
		start := time.Now()
		watch.start()
		g.held++
		err = g.wait(ctx)
		g.held--
		watch.stop()
		held = time.Since(start)
	}
	if err != nil {
		return held, "", err
	}
	g.inFlight++
	return held, g.version, nil
}

// wait lets go of the lock until the gate is open.
func (g *gate) wait(ctx context.Context) error {
	for g.resumed != nil {
		resumed := g.resumed
		g.mu.Unlock()
		select {
		case <-resumed:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if g.inFlight == 0 && g.drained != nil {
		close(g.drained)
		g.drained = nil
	}
}

// pause holds new calls and returns when those in flight have ended. If ctx
// ends first, or somebody resumes, the gate is open again. A pause of a paused
// gate changes nothing.
func (g *gate) pause(ctx context.Context) error {
	select {
	case g.pausing <- struct{}{}:
		defer func() { <-g.pausing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	g.mu.Lock()
	if g.resumed != nil {
		g.mu.Unlock()
		return nil
	}
	resumed := make(chan struct{})
	g.resumed = resumed
	if g.inFlight == 0 {
		g.mu.Unlock()
		return nil
	}
	drained := make(chan struct{})
	g.drained = drained
	g.mu.Unlock()

	select {
	case <-drained:
		return nil
	case <-resumed:
		return errResumed
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.resumed != resumed:
		return errResumed
	case g.inFlight == 0:
		return nil
	}
	g.open()
	return context.Cause(ctx)
}

// resume lets calls through, under a new version of the weights if one is named.
func (g *gate) resume(version string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if version != "" {
		g.version = version
	}
	g.open()
}

func (g *gate) open() {
	if g.resumed != nil {
		close(g.resumed)
	}
	g.resumed, g.drained = nil, nil
}

// stopwatch measures how long at least one of several was waiting.
type stopwatch struct {
	mu      sync.Mutex
	waiting int
	since   time.Time
	total   time.Duration
}

func (s *stopwatch) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 {
		s.since = time.Now()
	}
	s.waiting++
}

func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	if s.waiting == 0 {
		s.total += time.Since(s.since)
	}
}

func (s *stopwatch) elapsed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting > 0 {
		return s.total + time.Since(s.since)
	}
	return s.total
}
