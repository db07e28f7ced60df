package trajectory

import (
	"encoding/json"
	"fmt"
	"slices"

	"polar"
)

// Credit is a rule by which the traces of a session share its reward. The
// builder writes it into the trajectory's metadata, and Reward goes by it.
type Credit string

// The rules of credit.
const (
	// CreditAll gives every trace the session's reward.
	CreditAll Credit = "all"
	// CreditMain gives it to the main traces; no other is trained on.
	CreditMain Credit = "main"
	// CreditSplit gives each of the K traces that are trained on a K-th.
	CreditSplit Credit = "split"
	// CreditLast gives it to the main trace that began last, or where none is
	// trained on to the last that is; no other is trained on.
	CreditLast Credit = "last"
)

const creditKey = "credit"

// Rewards is what an evaluator gave a session.
type Rewards struct {
	// Session is for the session as a whole; nil means none was given.
	Session *float64
	// Traces, if not nil, has one reward for each trace. It wins over Session and
	// over every rule of credit.
	Traces     []float64
	Components map[string]float64
}

// Reward puts rewards onto the traces by the rule in the metadata, all without
// one. A trace that the rule leaves out has no reward and a training_filter. One
// that was marked for a tool call that could not be parsed has the reward 0, and
// what it would have been given in the filter. Giving the same rewards again
// changes nothing.
func Reward(t *polar.Trajectory, r Rewards) error {
	if r.Traces != nil && len(r.Traces) != len(t.Traces) {
		return fmt.Errorf("%d rewards for %d traces", len(r.Traces), len(t.Traces))
	}
	for i, given := range shares(t, r) {
		trace := &t.Traces[i]
		trace.Reward, trace.RewardComponents = given, nil
		if given != nil || r.Session == nil {
			trace.RewardComponents = r.Components
		}
		if f, ok := readFilter(trace); ok && f.Reason == FilterInvalidToolCall {
			f.OriginalReward = given
			trace.Reward = new(float64)
			trace.SetMeta(filterKey, f)
		}
	}
	return nil
}

// shares is the reward of each trace. Those that the rule leaves out are
// excluded from training.
func shares(t *polar.Trajectory, r Rewards) []*float64 {
	out := make([]*float64, len(t.Traces))
	if r.Traces != nil {
		for i := range out {
			out[i] = &r.Traces[i]
		}
		return out
	}
	if r.Session == nil {
		return out
	}
	rule := creditOf(t)
	share := *r.Session
	credited := func(int) bool { return true }
	switch rule {
	case CreditAll:
	case CreditMain:
		credited = func(i int) bool { return t.Traces[i].Role == polar.RoleMain }
	case CreditLast:
		last := lastTrained(t.Traces)
		credited = func(i int) bool { return i == last }
	case CreditSplit:
		trained := 0
		for _, trace := range t.Traces {
			if trace.Trainable() > 0 {
				trained++
			}
		}
		share /= float64(max(1, trained))
		credited = func(i int) bool { return t.Traces[i].Trainable() > 0 }
	}
	for i := range out {
		switch trace := &t.Traces[i]; {
		case credited(i):
			out[i] = &share
		case trace.Trainable() > 0:
			Exclude(trace, FilterCredit, string(rule))
		}
	}
	return out
}

func creditOf(t *polar.Trajectory) Credit {
	rule := CreditAll
	if raw, ok := t.Metadata[creditKey]; ok {
		_ = json.Unmarshal(raw, &rule) // a builder of somebody else's has no rule
	}
	return rule
}

// lastTrained is the place of the last main trace that is trained on, else of
// the last trace that is, or -1.
func lastTrained(traces []polar.Trace) int {
	last := -1
	for i, t := range slices.Backward(traces) {
		if t.Trainable() == 0 {
			continue
		}
		if t.Role == polar.RoleMain {
			return i
		}
		last = max(last, i)
	}
	return last
}
