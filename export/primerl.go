package export

import (
	"polar"
	"polar/llm"
)

// primeRLRow is prime-rl's TrainingSample: every list as long as prompt and
// response together.
type primeRLRow struct {
	TokenIDs     llm.IDs      `json:"token_ids" parquet:"token_ids,list"`
	Mask         []bool       `json:"mask" parquet:"mask,list"`
	Logprobs     llm.Logprobs `json:"logprobs" parquet:"logprobs,list"`
	Temperatures []float64    `json:"temperatures" parquet:"temperatures,list"`
	EnvName      string       `json:"env_name" parquet:"env_name"`
	Reward       *float64     `json:"reward" parquet:"reward,optional"`
	identity
}

// engineTemperature is what engines sample with when nobody asks otherwise.
const engineTemperature = 1

func primeRLOf(s *session, t *polar.Trace) primeRLRow {
	row := primeRLRow{
		TokenIDs: tokens(t), Mask: full(t, false, []bool(t.LossMask)), Logprobs: full(t, 0, logprobs(t)),
		EnvName: s.Labels["env_name"], Reward: t.Reward, identity: identityOf(s, t),
	}
	if row.EnvName == "" {
		row.EnvName = string(s.result.Task)
	}
	temperature := float64(engineTemperature)
	if s.Temperature != nil {
		temperature = *s.Temperature
	}
	row.Temperatures = make([]float64, len(row.TokenIDs))
	for i := range row.Temperatures {
		row.Temperatures[i] = temperature
	}
	return row
}
