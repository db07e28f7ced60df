package node

import (
	"context"
	"sync/atomic"
	"time"
)

// pool is the slots of one stage. Who comes first is served first.
type pool struct {
	slots chan struct{}
	queue atomic.Int64
}

func newPool(size int) *pool { return &pool{slots: make(chan struct{}, size)} }

// take waits for a slot. The cause of ctx is the error if it ends first.
func (p *pool) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.queue.Add(1)
	defer p.queue.Add(-1)
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pool) give() { <-p.slots }

func (p *pool) busy() int    { return len(p.slots) }
func (p *pool) waiting() int { return int(p.queue.Load()) }

// clock is the time a session has left. It runs only while the session is
// worked on: waiting for a slot is free.
type clock struct{ left time.Duration }

// start lets the clock run. The context ends with errTimeout when the time is
// over; stop must be called.
func (c *clock) start(ctx context.Context) (timed context.Context, stop func()) {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, c.left, errTimeout)
	return ctx, func() {
		cancel()
		c.left -= time.Since(begun)
	}
}
