package export

import (
	"polar"
	"polar/llm"
)

// skyrlRow is one entry of SkyRL's GeneratorOutput, whose lists are the columns.
// The rows of a session are its steps, one after another.
type skyrlRow struct {
	PromptTokenIDs llm.IDs      `json:"prompt_token_ids" parquet:"prompt_token_ids,list"`
	ResponseIDs    llm.IDs      `json:"response_ids" parquet:"response_ids,list"`
	Rewards        []float64    `json:"rewards" parquet:"rewards,list"`
	LossMasks      llm.IDs      `json:"loss_masks" parquet:"loss_masks,list"`
	StopReasons    string       `json:"stop_reasons" parquet:"stop_reasons"`
	Logprobs       llm.Logprobs `json:"rollout_logprobs" parquet:"rollout_logprobs,list,optional"`
	TrajectoryIDs  skyrlID      `json:"trajectory_ids" parquet:"trajectory_ids"`
	IsLastStep     bool         `json:"is_last_step" parquet:"is_last_step"`
	identity
}

type skyrlID struct {
	Instance   polar.TaskID `json:"instance_id" parquet:"instance_id"`
	Repetition int          `json:"repetition_id" parquet:"repetition_id"`
}

// skyrlRows puts the reward of the session on the last token of its last step,
// which is where SkyRL looks.
func skyrlRows(s *session) ([]any, error) {
	reward := s.result.Trajectory.Reward()
	if reward == nil {
		for range s.traces {
			s.leaveOut(tracesNoReward)
		}
		return nil, nil
	}
	var rows []any
	for i, t := range s.traces {
		row := skyrlRow{
			PromptTokenIDs: t.PromptIDs, ResponseIDs: t.ResponseIDs, Rewards: make([]float64, len(t.ResponseIDs)), LossMasks: mask(t),
			StopReasons: t.FinishReason, Logprobs: logprobs(t), TrajectoryIDs: skyrlID{Instance: s.result.Task, Repetition: s.Index},
			IsLastStep: i == len(s.traces)-1, identity: identityOf(s, t),
		}
		if row.IsLastStep {
			row.Rewards[len(row.Rewards)-1] = *reward
		}
		rows = append(rows, row)
	}
	return rows, nil
}
