package export

import (
	"polar"
	"polar/llm"
)

// arealRow is what AReaL's workflows return, with a batch of one.
type arealRow struct {
	InputIDs      []llm.IDs      `json:"input_ids" parquet:"input_ids,list" parquet-element:",list"`
	LossMask      []llm.IDs      `json:"loss_mask" parquet:"loss_mask,list" parquet-element:",list"`
	Logprobs      []llm.Logprobs `json:"logprobs" parquet:"logprobs,list" parquet-element:",list"`
	Versions      []llm.IDs      `json:"versions" parquet:"versions,list" parquet-element:",list"`
	AttentionMask []llm.IDs      `json:"attention_mask" parquet:"attention_mask,list" parquet-element:",list"`
	Rewards       []float64      `json:"rewards" parquet:"rewards,list"`
	identity
}

func arealOf(s *session, t *polar.Trace) arealRow {
	input := tokens(t)
	attention := make(llm.IDs, len(input))
	for i := range attention {
		attention[i] = 1
	}
	return arealRow{
		InputIDs: []llm.IDs{input}, LossMask: []llm.IDs{full(t, 0, mask(t))}, Logprobs: []llm.Logprobs{full(t, 0, logprobs(t))},
		Versions: []llm.IDs{full(t, notPolicy, versions(t))}, AttentionMask: []llm.IDs{attention}, Rewards: []float64{*t.Reward}, identity: identityOf(s, t),
	}
}
