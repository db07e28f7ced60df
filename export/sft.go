package export

import (
	"encoding/json"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// sftRow is a conversation as OpenAI's fine-tuning files have it.
type sftRow struct {
	Messages []json.RawMessage `json:"messages"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
}

// sftColumns is an sftRow in Parquet.
type sftColumns struct {
	Messages string `parquet:"messages,json"`
	Tools    string `parquet:"tools,json,optional"`
}

func (r sftRow) columns(text *jsonText) any {
	return sftColumns{Messages: text.of(r.Messages), Tools: text.ofList(r.Tools)}
}

func sftRows(s *session) ([]any, error) {
	var rows []any
	for _, t := range s.traces {
		messages, err := conversation(s, t)
		if err != nil {
			return nil, err
		}
		rows = append(rows, sftRow{Messages: messages, Tools: t.Tools})
	}
	return rows, nil
}

// conversation is all messages of a trace. Answers that were in the prompt are
// not this trace's own, or not the model's: they have the weight 0.
func conversation(s *session, t *polar.Trace) ([]json.RawMessage, error) {
	prompt, err := parseMessages(s, t, t.PromptMessages)
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, 0, len(t.PromptMessages)+len(t.ResponseMessages))
	for i, m := range prompt {
		raw := t.PromptMessages[i]
		if m.Role == "assistant" {
			if raw, err = unweighted(raw); err != nil {
				return nil, err
			}
		}
		out = append(out, raw)
	}
	return append(out, t.ResponseMessages...), nil
}

func unweighted(raw json.RawMessage) (json.RawMessage, error) {
	o, err := rawjson.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	o.Set("weight", json.RawMessage("0"))
	return o.Append(nil), nil
}

// shareGPTRow is a conversation in the ShareGPT form with tools.
type shareGPTRow struct {
	Conversations []shareGPTTurn `json:"conversations" parquet:"conversations,list"`
	// Tools is a JSON list, as text.
	Tools string `json:"tools,omitempty" parquet:"tools"`
}

type shareGPTTurn struct {
	From  string `json:"from" parquet:"from"`
	Value string `json:"value" parquet:"value"`
}

func shareGPTRows(s *session) ([]any, error) {
	var rows []any
	for _, t := range s.traces {
		row, ok, err := shareGPTOf(s, t)
		if err != nil {
			return nil, err
		}
		if !ok {
			s.leaveOut(tracesNotText)
			continue
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func shareGPTOf(s *session, t *polar.Trace) (row shareGPTRow, ok bool, err error) {
	for _, list := range [][]json.RawMessage{t.PromptMessages, t.ResponseMessages} {
		messages, err := parseMessages(s, t, list)
		if err != nil {
			return row, false, err
		}
		for _, m := range messages {
			if !onlyText(m) {
				return row, false, nil
			}
			row.Conversations = append(row.Conversations, shareGPTTurns(m)...)
		}
	}
	if len(t.Tools) > 0 {
		tools, err := encode(functions(t.Tools))
		if err != nil {
			return row, false, err
		}
		row.Tools = string(tools)
	}
	return row, true, nil
}

func shareGPTTurns(m llm.Message) (out []shareGPTTurn) {
	from := map[string]string{"system": "system", "developer": "system", "assistant": "gpt", "tool": "observation"}[m.Role]
	if from == "" {
		from = "human"
	}
	text := m.Text()
	if m.Reasoning != "" {
		text = "<think>\n" + m.Reasoning + "\n</think>\n" + text
	}
	if text != "" || len(m.ToolCalls) == 0 {
		out = append(out, shareGPTTurn{From: from, Value: text})
	}
	if len(m.ToolCalls) == 0 {
		return out
	}
	var calls []byte
	for i, c := range m.ToolCalls {
		if i > 0 {
			calls = append(calls, ',')
		}
		calls = append(calls, `{"name":`...)
		calls = rawjson.AppendString(calls, c.Name)
		calls = append(calls, `,"arguments":`...)
		if arguments := object(c.Arguments); arguments != nil {
			calls = append(calls, arguments...)
		} else {
			calls = rawjson.AppendString(calls, c.Arguments)
		}
		calls = append(calls, '}')
	}
	if len(m.ToolCalls) > 1 {
		calls = append(append([]byte{'['}, calls...), ']')
	}
	return append(out, shareGPTTurn{From: "function_call", Value: string(calls)})
}

// functions are tools without the wrapping of Chat Completions.
func functions(tools []json.RawMessage) []json.RawMessage {
	out := make([]json.RawMessage, 0, len(tools))
	for _, raw := range tools {
		if o, err := rawjson.ParseObject(raw); err == nil && o.Get("function") != nil {
			raw = o.Get("function")
		}
		out = append(out, raw)
	}
	return out
}
