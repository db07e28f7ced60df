package export

import (
	"polar"
	"polar/llm"
)

// tinkerRow is Tinker's Datum for its importance_sampling, ppo and cispo losses:
// the input is all tokens but the last, and every list of the loss belongs to
// the token that follows.
type tinkerRow struct {
	ModelInput   tinkerInput `json:"model_input" parquet:"model_input"`
	LossFnInputs tinkerLoss  `json:"loss_fn_inputs" parquet:"loss_fn_inputs"`
	Reward       float64     `json:"reward" parquet:"reward"`
	identity
}

type tinkerInput struct {
	Chunks []tinkerChunk `json:"chunks" parquet:"chunks,list"`
}

type tinkerChunk struct {
	Type   string  `json:"type" parquet:"type"`
	Tokens llm.IDs `json:"tokens" parquet:"tokens,list"`
}

type tinkerLoss struct {
	TargetTokens tinkerInts   `json:"target_tokens" parquet:"target_tokens"`
	Logprobs     tinkerFloats `json:"logprobs" parquet:"logprobs"`
	Advantages   tinkerFloats `json:"advantages" parquet:"advantages"`
	Mask         tinkerFloats `json:"mask" parquet:"mask"`
}

// tinkerInts and tinkerFloats are its TensorData.
type tinkerInts struct {
	Data  llm.IDs `json:"data" parquet:"data,list"`
	DType string  `json:"dtype" parquet:"dtype"`
	Shape []int   `json:"shape" parquet:"shape,list"`
}

type tinkerFloats struct {
	Data  llm.Logprobs `json:"data" parquet:"data,list"`
	DType string       `json:"dtype" parquet:"dtype"`
	Shape []int        `json:"shape" parquet:"shape,list"`
}

func tinkerOf(s *session, t *polar.Trace) tinkerRow {
	all := tokens(t)
	last := len(all) - 1
	trained := full(t, false, []bool(t.LossMask))
	ones, advantages := make(llm.Logprobs, len(all)), make(llm.Logprobs, len(all))
	for i, on := range trained {
		if on {
			ones[i], advantages[i] = 1, float32(*t.Reward)
		}
	}
	return tinkerRow{
		ModelInput: tinkerInput{Chunks: []tinkerChunk{{Type: "encoded_text", Tokens: all[:last]}}},
		LossFnInputs: tinkerLoss{
			TargetTokens: tinkerInts{Data: all[1:], DType: "int64", Shape: []int{last}},
			Logprobs:     tensor(full(t, 0, logprobs(t))), Advantages: tensor(advantages), Mask: tensor(ones),
		},
		Reward: *t.Reward, identity: identityOf(s, t),
	}
}

// tensor drops the place of the first token, which nothing predicts.
func tensor(list llm.Logprobs) tinkerFloats {
	return tinkerFloats{Data: list[1:], DType: "float32", Shape: []int{len(list) - 1}}
}
