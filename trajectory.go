package polar

import (
	"encoding/json"
	"slices"

	"polar/llm"
)

// Trajectory is what a trainer learns from: the traces of one session.
type Trajectory struct {
	Status   Status                     `json:"status"`
	Metadata map[string]json.RawMessage `json:"metadata"`
	Traces   []Trace                    `json:"traces"`
	Error    string                     `json:"error,omitempty"`
}

// Trace is one growing conversation: a prompt, then sampled tokens (mask 1) and
// what came between them (mask 0).
type Trace struct {
	ID               TraceID                    `json:"trace_id"`
	Role             Role                       `json:"role"`
	PromptIDs        llm.IDs                    `json:"prompt_ids"`
	ResponseIDs      llm.IDs                    `json:"response_ids"`
	LossMask         Mask                       `json:"loss_mask"`
	ResponseLogprobs llm.Logprobs               `json:"response_logprobs"`
	PromptMessages   []json.RawMessage          `json:"prompt_messages"`
	ResponseMessages []json.RawMessage          `json:"response_messages"`
	Tools            []json.RawMessage          `json:"tools"`
	FinishReason     string                     `json:"finish_reason"`
	Reward           *float64                   `json:"reward"`
	RewardComponents map[string]float64         `json:"reward_components,omitempty"`
	ParentID         TraceID                    `json:"parent_trace_id,omitempty"`
	Segment          int                        `json:"segment"`
	Calls            []CallID                   `json:"call_ids"`
	PolicyVersions   []VersionSpan              `json:"policy_versions"`
	Drift            Drift                      `json:"drift"`
	SplitReason      SplitReason                `json:"split_reason"`
	Metadata         map[string]json.RawMessage `json:"metadata"`
}

// TraceID names a trace within its session.
type TraceID string

// Role is what a conversation was for.
type Role string

// The roles of traces.
const (
	// RoleMain is the agent at its task, in every segment of its conversation.
	RoleMain Role = "main"
	// RoleSubagent is an agent that the main one started, with tools of its own.
	RoleSubagent Role = "subagent"
	// RoleCompaction wrote the summary that a conversation went on from.
	RoleCompaction Role = "compaction"
	// RoleAuxiliary is what a harness asks beside the task: titles, routes,
	// probes of a quota.
	RoleAuxiliary Role = "auxiliary"
)

// Roles are all roles.
func Roles() []Role { return []Role{RoleMain, RoleSubagent, RoleCompaction, RoleAuxiliary} }

// Drift counts where a conversation came back other than it was sampled.
type Drift struct {
	Turns  int `json:"turns"`
	Tokens int `json:"tokens"`
}

// SplitReason says why a trace did not continue an earlier one.
type SplitReason string

// The reasons for a new trace.
const (
	SplitRoot          SplitReason = "root"
	SplitRewritten     SplitReason = "history_rewritten"
	SplitFork          SplitReason = "fork"
	SplitDrift         SplitReason = "drift"
	SplitTruncated     SplitReason = "truncated"
	SplitEngineChanged SplitReason = "engine_changed"
)

// VersionSpan says from which response offset on tokens were sampled under a
// version of the weights. On the wire it is [version, offset].
type VersionSpan struct {
	Version string
	Offset  int
}

// MarshalJSON writes [version, offset].
func (v VersionSpan) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]any{v.Version, v.Offset})
}

// UnmarshalJSON reads [version, offset].
func (v *VersionSpan) UnmarshalJSON(data []byte) error {
	pair := [2]any{&v.Version, &v.Offset}
	return json.Unmarshal(data, &pair)
}

// Mask says of each response token whether it is trained on.
type Mask []bool

// MarshalJSON writes an array of 0 and 1.
func (m Mask) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 2*len(m)+2), '[')
	for i, on := range m {
		if i > 0 {
			b = append(b, ',')
		}
		if on {
			b = append(b, '1')
		} else {
			b = append(b, '0')
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads an array of 0 and 1.
func (m *Mask) UnmarshalJSON(data []byte) error {
	var ids llm.IDs
	if err := ids.UnmarshalJSON(data); err != nil {
		return err
	}
	*m = make(Mask, len(ids))
	for i, id := range ids {
		if id != 0 && id != 1 {
			return Invalid("loss_mask", "has %d, must be 0 or 1", id)
		}
		(*m)[i] = id == 1
	}
	return nil
}

// Trainable counts the tokens of the trace that are trained on.
func (t Trace) Trainable() int {
	n := 0
	for _, on := range t.LossMask {
		if on {
			n++
		}
	}
	return n
}

// Reward is the session's reward: the one its evaluation names, else that of
// the first trace that has one; nil if no trace has any.
func (t Trajectory) Reward() *float64 {
	i := slices.IndexFunc(t.Traces, func(tr Trace) bool { return tr.Reward != nil })
	if i < 0 {
		return nil
	}
	var evaluation struct {
		Reward *float64 `json:"reward"`
	}
	if raw := t.Metadata["evaluation"]; raw != nil && json.Unmarshal(raw, &evaluation) == nil && evaluation.Reward != nil {
		return evaluation.Reward
	}
	return t.Traces[i].Reward
}

// SetMeta puts a value into the metadata.
func (t *Trajectory) SetMeta(key string, value any) { setMeta(&t.Metadata, key, value) }

// SetMeta puts a value into the metadata.
func (t *Trace) SetMeta(key string, value any) { setMeta(&t.Metadata, key, value) }

func setMeta(m *map[string]json.RawMessage, key string, value any) {
	if *m == nil {
		*m = map[string]json.RawMessage{}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		raw, _ = json.Marshal(err.Error())
	}
	(*m)[key] = raw
}
