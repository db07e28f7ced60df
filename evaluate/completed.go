package evaluate

import (
	"context"

	"polar"
)

// SessionCompleted gives 1 to a session whose harness ran to its end without
// failing, else 0.
func SessionCompleted(struct{}) (Evaluator, error) { return sessionCompleted{}, nil }

type sessionCompleted struct{}

func (sessionCompleted) Evaluate(_ context.Context, c Case) (Verdict, error) {
	reward := 0.0
	if c.Trajectory.Status == polar.Completed {
		reward = 1
	}
	return Verdict{Reward: &reward, Detail: map[string]any{"status": c.Trajectory.Status}}, nil
}
