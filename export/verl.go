package export

import (
	"polar"
	"polar/llm"
)

// verlRow is verl's AgentLoopOutput.
type verlRow struct {
	PromptIDs    llm.IDs      `json:"prompt_ids" parquet:"prompt_ids,list"`
	ResponseIDs  llm.IDs      `json:"response_ids" parquet:"response_ids,list"`
	ResponseMask llm.IDs      `json:"response_mask" parquet:"response_mask,list"`
	Logprobs     llm.Logprobs `json:"response_logprobs" parquet:"response_logprobs,list,optional"`
	Reward       *float64     `json:"reward_score" parquet:"reward_score,optional"`
	Turns        int          `json:"num_turns" parquet:"num_turns"`
	Metrics      verlMetrics  `json:"metrics" parquet:"metrics"`
	Extra        verlExtra    `json:"extra_fields" parquet:"extra_fields"`
}

// verlMetrics has what is known of a trace; the other metrics of verl have
// defaults.
type verlMetrics struct {
	ComputeScore float64 `json:"compute_score" parquet:"compute_score"` // seconds
}

type verlExtra struct {
	identity
	Sample        int    `json:"sample" parquet:"sample"`
	MinGlobalStep *int64 `json:"min_global_steps" parquet:"min_global_steps,optional"`
	MaxGlobalStep *int64 `json:"max_global_steps" parquet:"max_global_steps,optional"`
}

func verlOf(s *session, t *polar.Trace) verlRow {
	row := verlRow{
		PromptIDs: t.PromptIDs, ResponseIDs: t.ResponseIDs, ResponseMask: mask(t), Logprobs: logprobs(t), Reward: t.Reward,
		Turns:   1 + len(t.ResponseMessages), // verl counts the prompt, each answer and what came between
		Metrics: verlMetrics{ComputeScore: s.result.Timing.Eval / 1000},
		Extra:   verlExtra{identity: identityOf(s, t), Sample: s.Index},
	}
	row.Extra.MinGlobalStep, row.Extra.MaxGlobalStep = versionRange(t)
	return row
}
