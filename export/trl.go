package export

import (
	"polar"
	"polar/llm"
)

// trlRow is one sample of what TRL's rollout_func returns; its lists are the
// columns. Keys that TRL does not know go to the reward functions.
type trlRow struct {
	PromptIDs     llm.IDs      `json:"prompt_ids" parquet:"prompt_ids,list"`
	CompletionIDs llm.IDs      `json:"completion_ids" parquet:"completion_ids,list"`
	Logprobs      llm.Logprobs `json:"logprobs" parquet:"logprobs,list"`
	EnvMask       llm.IDs      `json:"env_mask" parquet:"env_mask,list"`
	Reward        *float64     `json:"reward" parquet:"reward,optional"`
	identity
}

func trlOf(s *session, t *polar.Trace) trlRow {
	return trlRow{
		PromptIDs: t.PromptIDs, CompletionIDs: t.ResponseIDs, Logprobs: logprobs(t), EnvMask: mask(t), Reward: t.Reward, identity: identityOf(s, t),
	}
}
