package export

import (
	"encoding/json"

	"polar"
	"polar/llm"
)

// slimeRow is slime's Sample as its from_dict reads it.
type slimeRow struct {
	GroupIndex     int64             `json:"group_index" parquet:"group_index"`
	Index          int               `json:"index" parquet:"index"`
	RolloutID      int64             `json:"rollout_id" parquet:"rollout_id"` // traces of a session share it
	Prompt         []json.RawMessage `json:"prompt" parquet:"-"`
	Tokens         llm.IDs           `json:"tokens" parquet:"tokens,list"`
	Response       string            `json:"response" parquet:"response"`
	ResponseLength int               `json:"response_length" parquet:"response_length"`
	Label          *string           `json:"label" parquet:"label,optional"`
	Reward         *float64          `json:"reward" parquet:"reward,optional"`
	LossMask       llm.IDs           `json:"loss_mask" parquet:"loss_mask,list"`
	WeightVersions []string          `json:"weight_versions" parquet:"weight_versions,list"`
	Logprobs       llm.Logprobs      `json:"rollout_log_probs" parquet:"rollout_log_probs,list,optional"`
	RemoveSample   bool              `json:"remove_sample" parquet:"remove_sample"`
	Status         string            `json:"status" parquet:"status"`
	Metadata       slimeMetadata     `json:"metadata" parquet:"-"`
	Session        polar.SessionID   `json:"session_id" parquet:"session_id"`
}

type slimeMetadata struct {
	Task             polar.TaskID       `json:"task_id"`
	Trace            polar.TraceID      `json:"trace_id"`
	Parent           polar.TraceID      `json:"parent_trace_id,omitempty"`
	Role             polar.Role         `json:"role"`
	Segment          int                `json:"segment"`
	Sample           int                `json:"sample"`
	Group            json.RawMessage    `json:"group_id,omitempty"`
	RewardComponents map[string]float64 `json:"reward_components,omitempty"`
	Labels           map[string]string  `json:"labels,omitempty"`
	Tools            []json.RawMessage  `json:"tools,omitempty"`
}

// slimeColumns is a slimeRow in Parquet.
type slimeColumns struct {
	slimeRow
	Prompt   string `parquet:"prompt,json"`
	Metadata string `parquet:"metadata,json"`
}

func (r slimeRow) columns(text *jsonText) any {
	return slimeColumns{slimeRow: r, Prompt: text.of(r.Prompt), Metadata: text.of(r.Metadata)}
}

func slimeRows(s *session) ([]any, error) {
	var rows []any
	for i, t := range s.traces {
		response, err := parseMessages(s, t, t.ResponseMessages)
		if err != nil {
			return nil, err
		}
		rows = append(rows, slimeRow{
			GroupIndex: s.TaskSeq, Index: s.row + i, RolloutID: s.Seq,
			Prompt: rawList(t.PromptMessages), Tokens: tokens(t),
			Response: responseText(response), ResponseLength: len(t.ResponseIDs),
			Reward: t.Reward, LossMask: mask(t), WeightVersions: versionNames(t), Logprobs: logprobs(t),
			Status: slimeStatus(s.result.Status, t.FinishReason), Session: s.result.Session,
			Metadata: slimeMetadata{
				Task: s.result.Task, Trace: t.ID, Parent: t.ParentID, Role: t.Role, Segment: t.Segment, Sample: s.Index,
				Group: s.result.Trajectory.Metadata["group_id"], RewardComponents: t.RewardComponents, Labels: s.Labels, Tools: t.Tools,
			},
		})
	}
	return rows, nil
}

// slimeStatus is slime's word for how a sample ended.
func slimeStatus(s polar.Status, finish string) string {
	switch {
	case s == polar.Completed && finish == llm.FinishLength:
		return "truncated"
	case s == polar.Completed:
		return "completed"
	case s == polar.TimedOut:
		return "truncated"
	case s == polar.Cancelled:
		return "aborted"
	}
	return "failed"
}
