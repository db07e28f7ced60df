package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func never() time.Duration { return 0 }

func TestADeadlineEndsWithItsCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, cancel := deadline(t.Context(), time.Minute, errAgentTimeout, never)
		defer cancel()
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, errAgentTimeout) {
			t.Errorf("cause %v", cause)
		}
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestPausedInferenceBurnsNoTime holds calls back for an hour in the middle of a
// minute that the agent has.
func TestPausedInferenceBurnsNoTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Int64 // when, in nanoseconds; 0 means it is not
		var total atomic.Int64
		held := func() time.Duration {
			d := time.Duration(total.Load())
			if since := paused.Load(); since != 0 {
				d += time.Duration(time.Now().UnixNano() - since)
			}
			return d
		}
		begun := time.Now()
		c := clock{left: time.Minute}
		ctx, stop := c.start(t.Context(), held)
		time.AfterFunc(20*time.Second, func() { paused.Store(time.Now().UnixNano()) })
		time.AfterFunc(20*time.Second+time.Hour, func() {
			total.Add(time.Now().UnixNano() - paused.Swap(0))
		})
		<-ctx.Done()
		if took := time.Since(begun); took != time.Minute+time.Hour {
			t.Errorf("it took %s", took)
		}
		stop()
		if c.left != 0 {
			t.Errorf("%s left", c.left)
		}
	})
}

func TestAStoppedClockKeepsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clock{left: time.Minute}
		ctx, stop := c.start(t.Context(), never)
		<-time.After(15 * time.Second)
		stop()
		if c.left != 45*time.Second || errors.Is(context.Cause(ctx), errTimeout) {
			t.Errorf("%s left, cause %v", c.left, context.Cause(ctx))
		}
	})
}
