package node

import (
	"context"
	"encoding/json"
	"errors"

	"polar"
	"polar/api"
)

// report hands a result in. It tries until the server has it, does not want it,
// or the session is no longer ours; one try is made even while the node stops,
// since the work is done.
func (n *Node) report(ctx context.Context, s *session, r polar.Result) {
	backoff := minBackoff
	for {
		err := n.reportOnce(ctx, r)
		var refused *polar.FieldError
		switch {
		case err == nil:
			s.log.Info("session ended", "status", r.Status, "calls", r.Usage.Calls, "traces", len(r.Trajectory.Traces), "failure", kindOf(r.Failure))
			return
		case errors.Is(err, api.ErrStale):
			s.log.Info("result is stale")
			return
		case errors.As(err, &refused), unwritable(r, &err):
			s.log.Error("result refused", "error", err)
			if r.Failure != nil && r.Failure.Kind == polar.KindStorage && len(r.Trajectory.Traces) == 0 {
				return
			}
			r = refusedResult(r, err)
			continue
		}
		s.log.Warn("report", "error", err)
		wait(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
		if ctx.Err() != nil {
			return
		}
	}
}

func (n *Node) reportOnce(ctx context.Context, r polar.Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.CleanupLimit)
	defer cancel()
	return n.cfg.Work.Report(ctx, r)
}

// unwritable reports whether a result cannot be put into JSON, so that no server
// will ever take it, and replaces the error by that.
func unwritable(r polar.Result, err *error) bool {
	if _, bad := json.Marshal(r); bad != nil {
		*err = bad
		return true
	}
	return false
}

// refusedResult is what is left to say of a session whose result the server
// would not take.
func refusedResult(r polar.Result, refused error) polar.Result {
	r.Status = polar.Errored
	r.Failure = &polar.Failure{
		Stage: polar.StageBuild, Blame: polar.BlameService, Kind: polar.KindStorage,
		Message: "the result was refused: " + refused.Error(),
	}
	r.Error = r.Failure.Message
	r.Trajectory = polar.Trajectory{Status: polar.Errored, Error: r.Error, Traces: []polar.Trace{}, Metadata: map[string]json.RawMessage{}}
	r.Artifacts = []polar.Artifact{}
	return r
}

func kindOf(f *polar.Failure) string {
	if f == nil {
		return ""
	}
	return f.Kind
}
