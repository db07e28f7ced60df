package backend

import (
	"encoding/json"
	"strconv"

	"polar/llm"
	"polar/rawjson"
)

// isOurs lists the fields of a request that are written from llm.Request or
// decided here; one of the same name in Extra would stand twice.
func isOurs(key string) bool {
	switch key {
	case "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format",
		"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop", "chat_template_kwargs",
		"stream", "stream_options", "n", "logprobs", "top_logprobs", "return_token_ids":
		return true
	}
	return false
}

// appendRequest writes the body of a Chat Completions call to vLLM. What came
// as raw JSON goes out byte for byte.
func appendRequest(dst []byte, req llm.Request) []byte {
	if dst == nil {
		dst = make([]byte, 0, sizeOf(req))
	}
	dst = append(dst, `{"model":`...)
	dst = rawjson.AppendString(dst, req.Model)
	dst = append(dst, `,"messages":[`...)
	for i, m := range req.Messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.AppendJSON(dst, "reasoning")
	}
	dst = append(dst, ']')
	if len(req.Tools) > 0 {
		dst = append(dst, `,"tools":[`...)
		for i, tool := range req.Tools {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, tool...)
		}
		dst = append(dst, ']')
		dst = appendField(dst, "tool_choice", req.ToolChoice)
		dst = appendField(dst, "parallel_tool_calls", req.ParallelToolCalls)
	}
	dst = appendField(dst, "response_format", req.ResponseFormat)
	dst = appendSampling(dst, req.Sampling)
	// Always streamed, so that ids come as they are sampled and leaving aborts.
	// top_logprobs must not be null, or vLLM gives no logprobs at all.
	dst = append(dst, `,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":`...)
	top := 0
	if req.TopLogprobs != nil {
		top = *req.TopLogprobs
	}
	dst = strconv.AppendInt(dst, int64(top), 10)
	dst = append(dst, `,"return_token_ids":true`...)
	return append(appendExtra(dst, req.Extra), '}')
}

func appendSampling(dst []byte, s llm.Sampling) []byte {
	if s.Temperature != nil {
		dst = append(dst, `,"temperature":`...)
		dst = strconv.AppendFloat(dst, *s.Temperature, 'g', -1, 64)
	}
	if s.TopP != nil {
		dst = append(dst, `,"top_p":`...)
		dst = strconv.AppendFloat(dst, *s.TopP, 'g', -1, 64)
	}
	if s.TopK != nil {
		dst = append(dst, `,"top_k":`...)
		dst = strconv.AppendInt(dst, int64(*s.TopK), 10)
	}
	if s.MaxTokens != nil {
		dst = append(dst, `,"max_tokens":`...)
		dst = strconv.AppendInt(dst, int64(*s.MaxTokens), 10)
	}
	if s.Seed != nil {
		dst = append(dst, `,"seed":`...)
		dst = strconv.AppendInt(dst, *s.Seed, 10)
	}
	if len(s.Stop) > 0 {
		dst = append(dst, `,"stop":[`...)
		for i, stop := range s.Stop {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = rawjson.AppendString(dst, stop)
		}
		dst = append(dst, ']')
	}
	if len(s.ChatTemplateKwargs) > 0 {
		dst = append(dst, `,"chat_template_kwargs":`...)
		dst = s.ChatTemplateKwargs.Append(dst)
	}
	return dst
}

// appendExtra writes the fields nobody here knows. Of one that stands twice
// the last counts, as it does for the engine.
func appendExtra(dst []byte, extra rawjson.Object) []byte {
	if len(extra) == 0 {
		return dst
	}
	last := make(map[string]int, len(extra))
	for i, m := range extra {
		last[m.Key] = i
	}
	for i, m := range extra {
		if isOurs(m.Key) || last[m.Key] != i {
			continue
		}
		if m.Key == "include_reasoning" {
			m.Value = json.RawMessage("true") // without it vLLM leaves out ids and logprobs
		}
		dst = appendField(dst, m.Key, m.Value)
	}
	return dst
}

func appendField(dst []byte, key string, value json.RawMessage) []byte {
	if value == nil {
		return dst
	}
	dst = append(dst, ',')
	dst = rawjson.AppendString(dst, key)
	dst = append(dst, ':')
	return append(dst, value...)
}

// sizeOf guesses the length of a body, so that it is allocated once.
func sizeOf(req llm.Request) int {
	n := 1024 + len(req.ToolChoice) + len(req.ResponseFormat)
	for _, m := range req.Messages {
		n += 128 + len(m.Content) + len(m.Reasoning) + len(m.Reasoning)/8
		for _, c := range m.ToolCalls {
			n += 128 + len(c.Arguments) + len(c.Arguments)/4
		}
	}
	for _, t := range req.Tools {
		n += len(t) + 1
	}
	for _, e := range req.Extra {
		n += len(e.Key) + len(e.Value) + 4
	}
	return n
}
