package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"polar"
	"polar/api"
)

// Report takes the result of an attempt. It is durable when Report returns. A
// failure of the service is run again while the task allows it. An attempt that
// no longer holds its session gets an error that wraps api.ErrStale, and its
// result is dropped.
func (c *Coordinator) Report(ctx context.Context, r polar.Result) error {
	if !r.Status.Ended() {
		return fmt.Errorf("report session %s: status %q is not an end", r.Session, r.Status)
	}
	for {
		done, err := c.keep(ctx, r)
		if err != nil {
			return fmt.Errorf("report session %s: %w", r.Session, err)
		}
		if done.Cancel == "" {
			c.collected(r, done)
			return nil
		}
		r = stopped(r, done.Cancel)
	}
}

// keep puts the result where it survives, and only then ends the attempt.
func (c *Coordinator) keep(ctx context.Context, r polar.Result) (api.Finished, error) {
	r = whole(r)
	body, err := encode(r)
	if err != nil {
		return api.Finished{}, err
	}
	blob, _, err := c.cfg.Blobs.Put(ctx, bytes.NewReader(body))
	if err != nil {
		return api.Finished{}, err
	}
	return c.cfg.Store.Finish(ctx, api.Outcome{
		Summary: r.Summary(), Blob: blob, Usable: r.Usable(),
		Retry: r.Status != polar.Completed && r.Failure != nil && r.Failure.Blame == polar.BlameService,
	})
}

func (c *Coordinator) collected(r polar.Result, done api.Finished) {
	if done.Requeued {
		c.cfg.Log.Warn("attempt failed and will be run again", "session", r.Session, "attempt", r.Attempt,
			"kind", r.Failure.Kind, "stage", r.Failure.Stage, "message", r.Failure.Message)
	}
	if done.Requeued || done.Flagged > 0 {
		c.work.send()
	}
	c.changed.send()
	c.owed.send()
}

// stopped makes the result of an attempt that failed because it was cancelled
// say so.
func stopped(r polar.Result, kind string) polar.Result {
	f := api.Stopped(kind)
	if r.Failure != nil {
		f.Stage = r.Failure.Stage
	}
	r.Status, r.Failure, r.Error = polar.Cancelled, &f, f.Message
	r.Trajectory.Status, r.Trajectory.Error = polar.Cancelled, f.Message
	return r
}

// BareResult is the result of a session that ended without traces.
func BareResult(task polar.Task, s polar.Summary) polar.Result {
	r := polar.Result{
		Session: s.Session, Task: s.Task, Status: s.Status, Node: s.Node, Error: s.Error, Attempt: s.Attempt,
		Failure: s.Failure, Usage: s.Usage, Metadata: task.Metadata,
		Trajectory: polar.Trajectory{Status: s.Status, Error: s.Error},
	}
	if h, err := task.Hints(); err == nil {
		r.Trajectory.Metadata = h.OnTrajectory
	}
	return whole(r)
}

// whole gives every list and object of a result a value: clients of the Python
// project do not expect null.
func whole(r polar.Result) polar.Result {
	if r.Trajectory.Traces == nil {
		r.Trajectory.Traces = []polar.Trace{}
	}
	if r.Trajectory.Metadata == nil {
		r.Trajectory.Metadata = map[string]json.RawMessage{}
	}
	if r.Metadata == nil {
		r.Metadata = map[string]json.RawMessage{}
	}
	if r.Artifacts == nil {
		r.Artifacts = []polar.Artifact{}
	}
	return r
}

// encode is json.Marshal that leaves <, > and & as they were written.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
