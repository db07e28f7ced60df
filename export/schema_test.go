package export_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"polar"
	"polar/export"
)

// ids is what rows are named by.
type ids struct {
	Task    string `json:"task_id"`
	Session string `json:"session_id"`
	Trace   string `json:"trace_id"`
	Role    string `json:"role"`
}

// The readers below are the trainers' own schemas: each takes a row and knows no
// other field. A row whose lists do not fit together is an error.
type (
	slimeSample struct {
		GroupIndex     *int              `json:"group_index"`
		Index          *int              `json:"index"`
		RolloutID      *int              `json:"rollout_id"`
		Prompt         []map[string]any  `json:"prompt"`
		Tokens         []int             `json:"tokens"`
		Response       string            `json:"response"`
		ResponseLength int               `json:"response_length"`
		Label          *string           `json:"label"`
		Reward         *float64          `json:"reward"`
		LossMask       []int             `json:"loss_mask"`
		WeightVersions []string          `json:"weight_versions"`
		Logprobs       []float64         `json:"rollout_log_probs"`
		RemoveSample   bool              `json:"remove_sample"`
		Status         string            `json:"status"`
		Metadata       map[string]any    `json:"metadata"`
		Session        string            `json:"session_id"`
		Multimodal     map[string]any    `json:"multimodal_inputs"`
		TrainMetadata  map[string]string `json:"train_metadata"`
	}
	verlOutput struct {
		PromptIDs   []int     `json:"prompt_ids"`
		ResponseIDs []int     `json:"response_ids"`
		Mask        []int     `json:"response_mask"`
		Logprobs    []float64 `json:"response_logprobs"`
		Reward      *float64  `json:"reward_score"`
		Turns       int       `json:"num_turns"`
		Metrics     struct {
			Generate  float64 `json:"generate_sequences"`
			ToolCalls float64 `json:"tool_calls"`
			Score     float64 `json:"compute_score"`
			Preempted int     `json:"num_preempted"`
		} `json:"metrics"`
		Extra map[string]any `json:"extra_fields"`
	}
	trlSample struct {
		PromptIDs     []int     `json:"prompt_ids"`
		CompletionIDs []int     `json:"completion_ids"`
		Logprobs      []float64 `json:"logprobs"`
		EnvMask       []int     `json:"env_mask"`
		Reward        *float64  `json:"reward"`
		ids
	}
	primeSample struct {
		TokenIDs     []int     `json:"token_ids"`
		Mask         []bool    `json:"mask"`
		Logprobs     []float64 `json:"logprobs"`
		Temperatures []float64 `json:"temperatures"`
		Env          string    `json:"env_name"`
		Advantages   []float64 `json:"advantages"`
		Reward       *float64  `json:"reward"`
		ids
	}
	arealBatch struct {
		InputIDs  [][]int     `json:"input_ids"`
		LossMask  [][]int     `json:"loss_mask"`
		Logprobs  [][]float64 `json:"logprobs"`
		Versions  [][]int     `json:"versions"`
		Attention [][]int     `json:"attention_mask"`
		Rewards   []float64   `json:"rewards"`
		ids
	}
	tensorData struct {
		Data  []float64 `json:"data"`
		DType string    `json:"dtype"`
		Shape []int     `json:"shape"`
	}
	tinkerDatum struct {
		Input struct {
			Chunks []struct {
				Type   string `json:"type"`
				Tokens []int  `json:"tokens"`
			} `json:"chunks"`
		} `json:"model_input"`
		Loss   map[string]tensorData `json:"loss_fn_inputs"`
		Reward float64               `json:"reward"`
		ids
	}
	skyrlEntry struct {
		PromptIDs   []int     `json:"prompt_token_ids"`
		ResponseIDs []int     `json:"response_ids"`
		Rewards     []float64 `json:"rewards"`
		LossMasks   []int     `json:"loss_masks"`
		Stop        string    `json:"stop_reasons"`
		Logprobs    []float64 `json:"rollout_logprobs"`
		Trajectory  struct {
			Instance   string `json:"instance_id"`
			Repetition int    `json:"repetition_id"`
		} `json:"trajectory_ids"`
		Last bool `json:"is_last_step"`
		ids
	}
	gymItem struct {
		Type       string           `json:"type"`
		Role       string           `json:"role"`
		Content    json.RawMessage  `json:"content"`
		Summary    []map[string]any `json:"summary"`
		CallID     string           `json:"call_id"`
		Name       string           `json:"name"`
		Arguments  string           `json:"arguments"`
		Output     string           `json:"output"`
		Prompt     []int            `json:"prompt_token_ids"`
		Generation []int            `json:"generation_token_ids"`
		Logprobs   []float64        `json:"generation_log_probs"`
	}
	gymRollout struct {
		Params struct {
			Input []gymItem        `json:"input"`
			Tools []map[string]any `json:"tools"`
		} `json:"responses_create_params"`
		Response struct {
			ID     string    `json:"id"`
			Object string    `json:"object"`
			Output []gymItem `json:"output"`
		} `json:"response"`
		Reward *float64 `json:"reward"`
		ids
	}
	atifTrajectory struct {
		Schema  string `json:"schema_version"`
		Session string `json:"session_id"`
		ID      string `json:"trajectory_id"`
		Agent   struct {
			Name    string `json:"name"`
			Version string `json:"version"`
			Model   string `json:"model_name"`
		} `json:"agent"`
		Steps []struct {
			ID        int             `json:"step_id"`
			Source    string          `json:"source"`
			Message   json.RawMessage `json:"message"`
			Reasoning string          `json:"reasoning_content"`
			Calls     []struct {
				ID        string         `json:"tool_call_id"`
				Name      string         `json:"function_name"`
				Arguments map[string]any `json:"arguments"`
				Extra     map[string]any `json:"extra"`
			} `json:"tool_calls"`
			Observation struct {
				Results []struct {
					Call    string          `json:"source_call_id"`
					Content json.RawMessage `json:"content"`
				} `json:"results"`
			} `json:"observation"`
			Metrics struct {
				Prompt     int       `json:"prompt_tokens"`
				Completion int       `json:"completion_tokens"`
				PromptIDs  []int     `json:"prompt_token_ids"`
				IDs        []int     `json:"completion_token_ids"`
				Logprobs   []float64 `json:"logprobs"`
			} `json:"metrics"`
			Copied bool `json:"is_copied_context"`
		} `json:"steps"`
		Final struct {
			Prompt     int `json:"total_prompt_tokens"`
			Completion int `json:"total_completion_tokens"`
			Cached     int `json:"total_cached_tokens"`
			Steps      int `json:"total_steps"`
		} `json:"final_metrics"`
		Subagents []json.RawMessage `json:"subagent_trajectories"`
		Extra     map[string]any    `json:"extra"`
	}
	chatMessage struct {
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		Reasoning string          `json:"reasoning_content"`
		Calls     []struct {
			ID       string `json:"id"`
			Type     string `json:"type"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
		CallID string `json:"tool_call_id"`
		Weight *int   `json:"weight"`
	}
	sftConversation struct {
		Messages []chatMessage    `json:"messages"`
		Tools    []map[string]any `json:"tools"`
	}
	shareGPTConversation struct {
		Turns []struct {
			From  string `json:"from"`
			Value string `json:"value"`
		} `json:"conversations"`
		Tools string `json:"tools"`
	}
	dpoPair struct {
		Prompt   []chatMessage    `json:"prompt"`
		Chosen   []chatMessage    `json:"chosen"`
		Rejected []chatMessage    `json:"rejected"`
		Tools    []map[string]any `json:"tools"`
		Better   float64          `json:"score_chosen"`
		Worse    float64          `json:"score_rejected"`
		Task     string           `json:"task_id"`
		Best     string           `json:"chosen_session_id"`
		Worst    string           `json:"rejected_session_id"`
	}
)

// same reports whether all lengths are one, and not 0.
func same(n ...int) bool {
	for _, v := range n {
		if v != n[0] || v == 0 {
			return false
		}
	}
	return true
}

func (s slimeSample) fits() bool {
	return same(s.ResponseLength, len(s.LossMask)) && (s.Logprobs == nil || len(s.Logprobs) == s.ResponseLength) && len(s.Tokens) > s.ResponseLength &&
		strings.Contains(" pending completed truncated aborted failed ", " "+s.Status+" ") && *s.RolloutID > 0
}

func (v verlOutput) fits() bool {
	return same(len(v.ResponseIDs), len(v.Mask)) && (v.Logprobs == nil || len(v.Logprobs) == len(v.Mask)) && v.Turns >= 2 && len(v.PromptIDs) > 0
}

func (s trlSample) fits() bool {
	return same(len(s.CompletionIDs), len(s.Logprobs), len(s.EnvMask)) && len(s.PromptIDs) > 0
}

func (s primeSample) fits() bool {
	return same(len(s.TokenIDs), len(s.Mask), len(s.Logprobs), len(s.Temperatures)) && s.Env != ""
}

func (b arealBatch) fits() bool {
	if !same(1, len(b.InputIDs), len(b.LossMask), len(b.Logprobs), len(b.Versions), len(b.Attention), len(b.Rewards)) {
		return false
	}
	for i, v := range b.Versions[0] {
		if (v >= 0) != (b.LossMask[0][i] == 1) {
			return false
		}
	}
	return same(len(b.InputIDs[0]), len(b.LossMask[0]), len(b.Logprobs[0]), len(b.Versions[0]), len(b.Attention[0]))
}

func (d tinkerDatum) fits() bool {
	if len(d.Input.Chunks) != 1 {
		return false
	}
	for _, key := range []string{"target_tokens", "logprobs", "advantages", "mask"} {
		tensor := d.Loss[key]
		if len(tensor.Shape) != 1 || !same(len(d.Input.Chunks[0].Tokens), len(tensor.Data), tensor.Shape[0]) {
			return false
		}
	}
	for i, token := range d.Input.Chunks[0].Tokens[1:] { // what follows a token is its target
		if float64(token) != d.Loss["target_tokens"].Data[i] {
			return false
		}
	}
	return len(d.Loss) == 4
}

func (e skyrlEntry) fits() bool {
	return same(len(e.ResponseIDs), len(e.Rewards), len(e.LossMasks)) && (e.Logprobs == nil || len(e.Logprobs) == len(e.Rewards)) && len(e.PromptIDs) > 0
}

func (r gymRollout) fits() bool {
	var seen []int
	for _, item := range r.Response.Output {
		if item.Prompt == nil {
			continue
		}
		if len(item.Generation) == 0 || len(item.Generation) != len(item.Logprobs) || len(item.Prompt) < len(seen) {
			return false
		}
		for i, token := range seen { // each prompt begins with all before it
			if item.Prompt[i] != token {
				return false
			}
		}
		seen = append(append([]int{}, item.Prompt...), item.Generation...)
	}
	return seen != nil && r.Response.Object == "response"
}

func (a atifTrajectory) fits() bool {
	for i, s := range a.Steps {
		if s.ID != i+1 || s.Source != "system" && s.Source != "user" && s.Source != "agent" || s.Metrics.Completion != len(s.Metrics.IDs) {
			return false
		}
	}
	return a.Schema == "ATIF-v1.7" && a.Final.Steps == len(a.Steps) && a.Agent.Name != ""
}

func (c sftConversation) fits() bool { return len(c.Messages) > 1 }

func (c shareGPTConversation) fits() bool {
	for _, turn := range c.Turns {
		if !strings.Contains(" system human gpt function_call observation ", " "+turn.From+" ") {
			return false
		}
	}
	return len(c.Turns) > 1
}

func (p dpoPair) fits() bool {
	return p.Better > p.Worse && len(p.Prompt) > 0 && len(p.Chosen) > 0 && len(p.Rejected) > 0 && p.Best != p.Worst
}

// reader takes a row strictly and reports whether it fits together.
func reader[R interface{ fits() bool }](row []byte) (bool, error) {
	var r R
	err := polar.DecodeStrict(row, &r)
	return err == nil && r.fits(), err
}

type polarResult struct{ polar.Result }

func (r polarResult) fits() bool { return r.Session != "" && r.Status == polar.Completed }

func TestEveryFormatIsReadByItsOwnSchema(t *testing.T) {
	t.Parallel()
	readers := map[string]func([]byte) (bool, error){
		"polar": reader[polarResult], "slime": reader[slimeSample], "verl": reader[verlOutput], "trl": reader[trlSample],
		"nemo_gym": reader[gymRollout], "prime_rl": reader[primeSample], "areal": reader[arealBatch], "tinker": reader[tinkerDatum],
		"skyrl": reader[skyrlEntry], "atif": reader[atifTrajectory], "sft": reader[sftConversation], "sharegpt": reader[shareGPTConversation],
		"dpo": reader[dpoPair],
	}
	for _, name := range export.Formats() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, source := range []memory{fixture(t), many(t, 8, 5, 3)} {
				out, sum := run(t, export.Config{Source: source, Format: name})
				if sum.Rows == 0 {
					t.Error("no rows")
				}
				for line := range bytes.Lines([]byte(out)) {
					if ok, err := readers[name](line); !ok {
						t.Errorf("%v: %s", err, line)
					}
				}
			}
		})
	}
}
