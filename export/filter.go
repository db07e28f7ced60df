package export

import (
	"encoding/json"
	"maps"
	"slices"

	"polar"
)

// Filter chooses what is exported. Zero fields choose all.
type Filter struct {
	// MinReward leaves out rows whose reward is below it or missing.
	MinReward *float64 `json:"min_reward,omitempty"`
	// Status and Role list what is taken.
	Status []polar.Status `json:"status,omitempty"`
	Role   []polar.Role   `json:"role,omitempty"`
	// Labels are those that a task must have.
	Labels map[string]string `json:"labels,omitempty"`
	// Task is the one task that is taken.
	Task polar.TaskID `json:"task,omitempty"`
}

func (f Filter) wantsPlace(i Item) bool {
	for key, value := range f.Labels {
		if got, ok := i.Labels[key]; !ok || got != value {
			return false
		}
	}
	return i.Status == "" || f.wantsStatus(i.Status)
}

func (f Filter) wantsStatus(s polar.Status) bool {
	return len(f.Status) == 0 || slices.Contains(f.Status, s)
}

func (f Filter) wantsRole(r polar.Role) bool { return len(f.Role) == 0 || slices.Contains(f.Role, r) }

func (f Filter) wantsReward(r *float64) bool {
	return f.MinReward == nil || r != nil && *r >= *f.MinReward
}

// text is the same for the same filter.
func (f Filter) text() (string, error) {
	f.Status, f.Role, f.Labels = slices.Sorted(slices.Values(f.Status)), slices.Sorted(slices.Values(f.Role)), maps.Clone(f.Labels)
	raw, err := json.Marshal(f)
	return string(raw), err
}

// Why something was left out.
const (
	sessionsFiltered  = "sessions filtered"
	tracesFiltered    = "traces filtered"
	tracesUntrainable = "traces not trainable"
	tracesNoLogprobs  = "traces without logprobs"
	tracesNoReward    = "traces without a reward"
	tracesNotText     = "traces with more than text"
	tracesUnclear     = "traces whose turns and messages do not match"
	sessionsNoTrace   = "sessions without a trace"
	sessionsNoAnswer  = "sessions without an answer and a reward"
	groupsNoDiffer    = "groups without a better and a worse session"
)

// session is a result with those of its traces that are to be exported.
type session struct {
	Place
	raw    json.RawMessage
	result *polar.Result
	traces []*polar.Trace
	// narrowed says that the filter took traces away.
	narrowed bool
	// row is the number of the first row in the file.
	row  int
	left map[string]int
}

func (s *session) leaveOut(why string) { s.left[why]++ }

// choose takes the traces that the filter and the format want, and reports
// whether there is something to export.
func (s *session) choose(f Filter, form format) bool {
	if !f.wantsStatus(s.result.Status) {
		s.leaveOut(sessionsFiltered)
		return false
	}
	if form.whole && !f.wantsReward(s.result.Trajectory.Reward()) {
		s.leaveOut(sessionsFiltered)
		return false
	}
	traces := s.result.Trajectory.Traces
	for i := range traces {
		t := &traces[i]
		if !f.wantsRole(t.Role) || !form.whole && !f.wantsReward(t.Reward) {
			s.leaveOut(tracesFiltered)
			s.narrowed = true
			continue
		}
		if why := form.refuses(t); why != "" {
			s.leaveOut(why)
			continue
		}
		s.traces = append(s.traces, t)
	}
	if len(traces) == 0 && !form.whole {
		s.leaveOut(sessionsNoTrace)
	}
	return form.whole || len(s.traces) > 0
}

func (f format) refuses(t *polar.Trace) string {
	switch {
	case f.trains && t.Trainable() == 0:
		return tracesUntrainable
	case f.logprobs && logprobs(t) == nil:
		return tracesNoLogprobs
	case f.rewarded && t.Reward == nil:
		return tracesNoReward
	}
	return ""
}
