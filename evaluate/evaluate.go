// Package evaluate scores sessions. An evaluator sees the trajectory and the
// sandbox the harness left behind.
package evaluate

import (
	"context"

	"polar"
	"polar/sandbox"
)

// Evaluator scores one session.
type Evaluator interface {
	// Evaluate returns the verdict. An error means that the evaluator itself
	// could not do its work, not that the agent failed.
	Evaluate(ctx context.Context, c Case) (Verdict, error)
}

// Case is what an evaluator judges.
type Case struct {
	Session    polar.SessionID
	Task       polar.TaskID
	Trajectory polar.Trajectory
	// Sandbox is the one the harness ran in, or a fresh one if the task asked.
	Sandbox sandbox.Sandbox
	// Env is the session's environment with the evaluator's own over it.
	Env map[string]string
}

// Verdict is a score.
type Verdict struct {
	// Reward of the whole session; nil means none was given.
	Reward *float64 `json:"reward"`
	// TraceRewards, if not nil, has one reward per trace and wins over Reward.
	TraceRewards []float64          `json:"trace_rewards,omitempty"`
	Components   map[string]float64 `json:"components,omitempty"`
	// Detail says how the verdict came about, for people.
	Detail map[string]any `json:"detail,omitempty"`
}
