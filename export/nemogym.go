package export

import (
	"encoding/json"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// nemoGymRow is a rollout of NeMo Gym: a Responses request, its answer with
// tokens on the last item of each call, and the reward.
type nemoGymRow struct {
	Params   nemoGymParams   `json:"responses_create_params" parquet:"-"`
	Response nemoGymResponse `json:"response" parquet:"-"`
	Reward   *float64        `json:"reward" parquet:"reward,optional"`
	identity
}

type nemoGymParams struct {
	Input []nemoGymItem     `json:"input"`
	Tools []json.RawMessage `json:"tools"`
}

type nemoGymResponse struct {
	ID     string        `json:"id"`
	Object string        `json:"object"`
	Output []nemoGymItem `json:"output"`
}

// nemoGymItem is an item of either side; the type says which fields count.
type nemoGymItem struct {
	Type      string        `json:"type"`
	Role      string        `json:"role,omitempty"`
	Content   any           `json:"content,omitempty"`
	Summary   []nemoGymText `json:"summary,omitempty"`
	CallID    string        `json:"call_id,omitempty"`
	Name      string        `json:"name,omitempty"`
	Arguments *string       `json:"arguments,omitempty"`
	Output    *string       `json:"output,omitempty"`

	PromptTokenIDs     llm.IDs      `json:"prompt_token_ids,omitempty"`
	GenerationTokenIDs llm.IDs      `json:"generation_token_ids,omitempty"`
	GenerationLogprobs llm.Logprobs `json:"generation_log_probs,omitempty"`
}

type nemoGymText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// nemoGymColumns is a nemoGymRow in Parquet.
type nemoGymColumns struct {
	Params   string `parquet:"responses_create_params,json"`
	Response string `parquet:"response,json"`
	nemoGymRow
}

func (r nemoGymRow) columns(text *jsonText) any {
	return nemoGymColumns{nemoGymRow: r, Params: text.of(r.Params), Response: text.of(r.Response)}
}

func nemoGymRows(s *session) ([]any, error) {
	var rows []any
	for _, t := range s.traces {
		prompt, err := parseMessages(s, t, t.PromptMessages)
		if err != nil {
			return nil, err
		}
		response, err := parseMessages(s, t, t.ResponseMessages)
		if err != nil {
			return nil, err
		}
		output, ok := nemoGymOutput(t, response)
		if !ok {
			s.leaveOut(tracesUnclear)
			continue
		}
		row := nemoGymRow{
			Params:   nemoGymParams{Input: []nemoGymItem{}, Tools: rawList(functionTools(t.Tools))},
			Response: nemoGymResponse{ID: "resp_" + string(s.result.Session) + "_" + string(t.ID), Object: "response", Output: output},
			Reward:   t.Reward, identity: identityOf(s, t),
		}
		for _, m := range prompt {
			row.Params.Input = append(row.Params.Input, nemoGymItems(m)...)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// nemoGymOutput puts the tokens of each answer on the last of its items. Each
// prompt is the one before it and more.
func nemoGymOutput(t *polar.Trace, response []llm.Message) (out []nemoGymItem, ok bool) {
	answers, all, values := spans(t), tokens(t), logprobs(t)
	for _, m := range response {
		out = append(out, nemoGymItems(m)...)
		if m.Role != "assistant" {
			continue
		}
		if len(answers) == 0 {
			return nil, false
		}
		a, last := answers[0], &out[len(out)-1]
		answers = answers[1:]
		last.PromptTokenIDs = all[:len(t.PromptIDs)+a.from]
		last.GenerationTokenIDs, last.GenerationLogprobs = t.ResponseIDs[a.from:a.to], values[a.from:a.to]
	}
	return out, len(answers) == 0
}

// nemoGymItems are the Responses items of a message.
func nemoGymItems(m llm.Message) (out []nemoGymItem) {
	text := m.Text()
	if m.Role == "tool" {
		return []nemoGymItem{{Type: "function_call_output", CallID: m.ToolCallID, Output: &text}}
	}
	if m.Role != "assistant" {
		return []nemoGymItem{{Type: "message", Role: m.Role, Content: inputContent(m)}}
	}
	if m.Reasoning != "" {
		out = append(out, nemoGymItem{Type: "reasoning", Summary: []nemoGymText{{Type: "summary_text", Text: m.Reasoning}}})
	}
	if text != "" || len(m.ToolCalls) == 0 {
		out = append(out, nemoGymItem{Type: "message", Role: m.Role, Content: []nemoGymText{{Type: "output_text", Text: text}}})
	}
	for _, c := range m.ToolCalls {
		out = append(out, nemoGymItem{Type: "function_call", CallID: c.ID, Name: c.Name, Arguments: &c.Arguments})
	}
	return out
}

// inputContent is the content of a message that the model did not write, with
// its parts as Responses names them.
func inputContent(m llm.Message) any {
	if rawjson.IsNull(m.Content) || m.Content[0] == '"' {
		return m.Text()
	}
	var parts []json.RawMessage
	_ = rawjson.EachElement(m.Content, func(part []byte) error {
		parts = append(parts, inputPart(part))
		return nil
	})
	return parts
}

func inputPart(part []byte) json.RawMessage {
	o, err := rawjson.ParseObject(part)
	if err != nil {
		return part
	}
	switch kind, _ := rawjson.String(o.Get("type")); kind {
	case "text":
		o.Set("type", rawjson.Quote("input_text"))
	case "image_url":
		image, err := rawjson.ParseObject(o.Get("image_url"))
		if err != nil {
			return part
		}
		o.Set("type", rawjson.Quote("input_image"))
		o.Set("image_url", image.Get("url"))
	}
	return o.Append(nil)
}

// functionTools are tools as Responses has them: the function's own fields.
func functionTools(tools []json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	for _, raw := range functions(tools) {
		if o, err := rawjson.ParseObject(raw); err == nil {
			o.Set("type", rawjson.Quote("function"))
			raw = o.Append(nil)
		}
		out = append(out, raw)
	}
	return out
}
