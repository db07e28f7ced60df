package node

import (
	"context"
	"errors"
	"sync"
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
		var mu sync.Mutex
		var paused time.Time // zero means it is not
		var total time.Duration
		held := func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if paused.IsZero() {
				return total
			}
			return total + time.Since(paused)
		}
		begun := time.Now()
		c := clock{left: time.Minute}
		ctx, stop := c.start(t.Context(), held)
		time.AfterFunc(20*time.Second, func() {
			mu.Lock()
			defer mu.Unlock()
			paused = time.Now()
		})
		time.AfterFunc(20*time.Second+time.Hour, func() {
			mu.Lock()
			defer mu.Unlock()
			total += time.Since(paused)
			paused = time.Time{}
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
