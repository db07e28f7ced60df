package polar

import (
	"encoding/json"
	"math"
)

// Hints are the keys of a task's metadata that mean something to the service.
type Hints struct {
	// AgentTimeout starts when the harness does; 0 means none.
	AgentTimeout Seconds
	// SeedBase gives sample i the sampling seed SeedBase+i.
	SeedBase *int64
	// PolicyVersion is the weights' version the trainer submitted under.
	PolicyVersion string
	// OnTrajectory are the keys that are copied onto the trajectory.
	OnTrajectory map[string]json.RawMessage
}

// Hints reads the metadata keys that have a meaning.
func (t Task) Hints() (Hints, error) {
	h := Hints{OnTrajectory: map[string]json.RawMessage{}}
	if raw, ok := t.Metadata["agent_timeout"]; ok {
		var f float64
		if err := json.Unmarshal(raw, &f); err != nil || !(f > 0) || math.IsInf(f, 0) {
			return h, Invalid("metadata.agent_timeout", "must be a number above 0")
		}
		h.AgentTimeout = Seconds(f)
	}
	if raw, ok := t.Metadata["eval_sampling_seed_base"]; ok {
		var n int64
		if err := json.Unmarshal(raw, &n); err != nil {
			return h, Invalid("metadata.eval_sampling_seed_base", "must be an integer")
		}
		h.SeedBase = &n
	}
	for _, key := range []string{"group_id", "policy_version", "rollout_step"} {
		if raw, ok := t.Metadata[key]; ok {
			h.OnTrajectory[key] = raw
		}
	}
	if raw, ok := t.Metadata["policy_version"]; ok {
		h.PolicyVersion = string(raw)
		var s string
		if json.Unmarshal(raw, &s) == nil {
			h.PolicyVersion = s
		}
	}
	return h, nil
}
