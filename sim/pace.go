package sim

import (
	"context"
	"time"

	"polar/sse"
)

// pace says when each token of an answer is there.
type pace struct {
	start    time.Time
	first    time.Duration
	perToken time.Duration
}

func newPace(c Config, fault *Fault) pace {
	p := pace{start: time.Now(), first: c.TTFT}
	if c.TokensPerSecond > 0 {
		p.perToken = time.Duration(float64(time.Second) / c.TokensPerSecond)
	}
	if fault.is(FaultSlow) {
		p.first += fault.Delay
	}
	return p
}

// wait returns once n tokens are there; the first comes with the end of the
// time to the first token. What was written before is sent first.
func (p pace) wait(ctx context.Context, out *stream, n int) error {
	if p.first == 0 && p.perToken == 0 {
		return nil
	}
	left := time.Until(p.start.Add(p.first + time.Duration(max(0, n-1))*p.perToken))
	if left <= 0 {
		return ctx.Err()
	}
	if out != nil {
		if err := out.flush(); err != nil {
			return err
		}
	}
	return sleep(ctx, left)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// stream gathers events and sends them when there is time: before a wait, at
// the end, and when many have gathered. With no speed set that saves a system
// call for every token.
type stream struct {
	sse     *sse.Writer
	buf     []byte
	pending int
}

// take lends the buffer for one event.
func (s *stream) take() []byte { return s.buf[:0] }

func (s *stream) add(event []byte) {
	s.buf = event
	s.pending += len(event)
	s.sse.Add("", event)
}

func (s *stream) full() bool { return s.pending >= 16<<10 }

func (s *stream) flush() error {
	if s.pending == 0 {
		return nil
	}
	s.pending = 0
	return s.sse.Flush()
}
