package local

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// markerName is the variable by which a sandbox's processes are known, however
// far they have moved from their parent: instance/sandbox/command.
const markerName = "POLAR_SANDBOX"

// killLimit bounds how long the processes of a cancelled command are hunted.
const killLimit = 10 * time.Second

// trail is what the processes of a sandbox are known by.
type trail struct {
	// marker is the value of the marker variable, or what it begins with.
	marker string
	exact  bool
	// folder is one that only they work in; empty for none.
	folder   string
	sessions map[int]bool
}

// endAll kills until nothing on the trail is found.
func endAll(ctx context.Context, t trail) error {
	pause := time.Millisecond
	for {
		left, err := killOnce(t)
		if err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return errors.Join(fmt.Errorf("%d processes would not end", left), context.Cause(ctx))
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}
