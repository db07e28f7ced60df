package backend

import (
	"encoding/json"
	"strconv"

	"polar/llm"
	"polar/rawjson"
)

// dialect is what engines that speak Chat Completions differ in.
type dialect struct {
	// reasoningKey is the name of a message's reasoning.
	reasoningKey string
	// maxTokensKey is the name of the bound of an answer.
	maxTokensKey string
	stream       bool
	// logprobs are asked for whether or not the harness did.
	logprobs bool
	// flags are set to true.
	flags []string
	// standard leaves out all that is not in OpenAI's own API.
	standard bool
}

// isOurs lists the fields of a request that are written from llm.Request or
// decided here; one of the same name in Extra would stand twice.
func isOurs(key string) bool {
	switch key {
	case "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format",
		"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop", "chat_template_kwargs",
		"stream", "stream_options", "n", "logprobs", "top_logprobs", "return_token_ids",
		"return_prompt_token_ids", "return_meta_info", "return_input_ids", "return_output_ids":
		return true
	}
	return false
}

// isStandard lists the fields of OpenAI's API that Extra may hold.
func isStandard(key string) bool {
	switch key {
	case "frequency_penalty", "presence_penalty", "logit_bias", "user", "reasoning_effort", "verbosity", "modalities",
		"audio", "prediction", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "web_search_options":
		return true
	}
	return false
}

// chatBody writes the body of a Chat Completions call. What came as raw JSON
// goes out byte for byte.
func (d dialect) chatBody(req llm.Request) *body {
	b := newBody()
	b.text(`{"model":`)
	b.quoted(req.Model)
	d.conversation(b, req)
	b.field("response_format", req.ResponseFormat)
	d.sampling(b, req.Sampling)
	if d.stream {
		b.text(`,"stream":true,"stream_options":{"include_usage":true}`)
	} else {
		b.text(`,"stream":false`)
	}
	if d.logprobs || req.TopLogprobs != nil {
		// top_logprobs must not be null, or vLLM gives no logprobs at all.
		top := 0
		if req.TopLogprobs != nil {
			top = *req.TopLogprobs
		}
		b.text(`,"logprobs":true,"top_logprobs":`)
		b.tail = strconv.AppendInt(b.tail, int64(top), 10)
	}
	for _, flag := range d.flags {
		b.field(flag, json.RawMessage("true"))
	}
	d.extra(b, req.Extra)
	b.text("}")
	return b
}

// conversation writes what becomes of the prompt: messages and tools.
func (d dialect) conversation(b *body, req llm.Request) {
	b.text(`,"messages":[`)
	for i, m := range req.Messages {
		if i > 0 {
			b.text(",")
		}
		if m.Role == "developer" {
			m = m.WithRole("system") // which every chat template knows
		}
		if d.standard && (m.Reasoning != "" || m.Extra != nil) {
			m = m.WithRole(m.Role)
			m.Reasoning, m.Extra = "", nil
		}
		before, content, after := m.Pieces(d.reasoningKey)
		b.raw(before)
		b.raw(content)
		b.raw(after)
	}
	b.text("]")
	if len(req.Tools) > 0 { // engines refuse an empty list
		b.text(`,"tools":`)
		b.list(req.Tools)
		b.field("tool_choice", req.ToolChoice)
		b.field("parallel_tool_calls", req.ParallelToolCalls)
	}
}

func (d dialect) sampling(b *body, s llm.Sampling) {
	appendCommon(b, s)
	if s.TopK != nil && !d.standard {
		b.text(`,"top_k":`)
		b.tail = strconv.AppendInt(b.tail, int64(*s.TopK), 10)
	}
	if s.MaxTokens != nil {
		b.text(",")
		b.quoted(or(d.maxTokensKey, "max_tokens"))
		b.text(":")
		b.tail = strconv.AppendInt(b.tail, int64(*s.MaxTokens), 10)
	}
	if s.Seed != nil {
		b.text(`,"seed":`)
		b.tail = strconv.AppendInt(b.tail, *s.Seed, 10)
	}
	appendStop(b, s.Stop)
	if len(s.ChatTemplateKwargs) > 0 && !d.standard {
		b.field("chat_template_kwargs", s.ChatTemplateKwargs.Append(nil))
	}
}

func appendCommon(b *body, s llm.Sampling) {
	if s.Temperature != nil {
		b.text(`,"temperature":`)
		b.tail = strconv.AppendFloat(b.tail, *s.Temperature, 'g', -1, 64)
	}
	if s.TopP != nil {
		b.text(`,"top_p":`)
		b.tail = strconv.AppendFloat(b.tail, *s.TopP, 'g', -1, 64)
	}
}

func appendStop(b *body, stop []string) {
	if len(stop) == 0 {
		return
	}
	b.text(`,"stop":[`)
	for i, s := range stop {
		if i > 0 {
			b.text(",")
		}
		b.quoted(s)
	}
	b.text("]")
}

// extra writes the fields nobody here knows. Of one that stands twice the last
// counts, as it does for the engine.
func (d dialect) extra(b *body, extra rawjson.Object) {
	if len(extra) == 0 {
		return
	}
	last := make(map[string]int, len(extra))
	for i, m := range extra {
		last[m.Key] = i
	}
	for i, m := range extra {
		if isOurs(m.Key) || last[m.Key] != i || d.standard && !isStandard(m.Key) {
			continue
		}
		if m.Key == "include_reasoning" {
			m.Value = json.RawMessage("true") // without it vLLM leaves out ids and logprobs
		}
		b.field(m.Key, m.Value)
	}
}
