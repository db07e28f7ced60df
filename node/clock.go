package node

import (
	"context"
	"time"
)

// clock is the time a session has left. It runs only while the session is
// worked on: waiting for a slot, or for inference that is paused, is free.
type clock struct{ left time.Duration }

// start lets the clock run. The context ends with errTimeout when the time is
// over; stop must be called. held is how long the session's calls have been held
// back so far.
func (c *clock) start(ctx context.Context, held func() time.Duration) (timed context.Context, stop func()) {
	spent := stopwatch(held)
	ctx, cancel := deadline(ctx, c.left, errTimeout, held)
	return ctx, func() {
		cancel()
		c.left -= spent()
	}
}

// stopwatch measures from now on, but for the time that calls are held back.
func stopwatch(held func() time.Duration) func() time.Duration {
	begun, before := time.Now(), held()
	return func() time.Duration { return time.Since(begun) - (held() - before) }
}

// deadline ends the context with the cause when limit is over on a stopwatch.
// What it started has ended when cancel returns.
func deadline(ctx context.Context, limit time.Duration, cause error, held func() time.Duration) (timed context.Context, cancel func()) {
	spent := stopwatch(held)
	timed, end := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(limit)
		defer timer.Stop()
		for {
			select {
			case <-timed.Done():
				return
			case <-timer.C:
			}
			left := limit - spent()
			if left <= 0 {
				end(cause)
				return
			}
			timer.Reset(left)
		}
	}()
	return timed, func() {
		end(context.Canceled)
		<-ended
	}
}

// holding is what tells how long the session's calls were held back. It is to
// be asked for again when the session got its key.
func (l *life) holding() func() time.Duration {
	h, ok := l.node.cfg.Recorder.(Holder)
	if !ok || l.key == "" {
		return func() time.Duration { return 0 }
	}
	key := l.key
	return func() time.Duration { return h.Held(key) }
}
