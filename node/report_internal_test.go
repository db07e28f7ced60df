package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"polar"
)

// jsonServer is a server that can only take what can be written.
type jsonServer struct {
	Work
	got []polar.Result
}

func (s *jsonServer) Report(_ context.Context, r polar.Result) error {
	if reward := r.Trajectory.Reward(); reward != nil && math.IsNaN(*reward) {
		return errors.New("encode: unsupported value: NaN")
	}
	s.got = append(s.got, r)
	return nil
}

func TestAResultThatCannotBeWrittenIsReportedWithoutItsTraces(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	server := &jsonServer{}
	n := &Node{cfg: Config{Work: server, CleanupLimit: time.Second}}
	n.report(t.Context(), &session{log: slog.New(slog.DiscardHandler)}, polar.Result{
		Status: polar.Completed, Trajectory: polar.Trajectory{Traces: []polar.Trace{{Reward: &nan}}},
	})
	if len(server.got) != 1 || server.got[0].Failure.Blame != polar.BlameService || len(server.got[0].Trajectory.Traces) != 0 {
		t.Errorf("reported %+v", server.got)
	}
}
