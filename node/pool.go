package node

import (
	"context"
	"sync/atomic"
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
