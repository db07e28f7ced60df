package backend

import (
	"context"
	"iter"

	"polar/llm"
)

// VLLMConfig says where a vLLM server is and how patient to be with it.
type VLLMConfig struct {
	// URL is the server's root; a /v1 at its end is taken off.
	URL    string `json:"url"`
	APIKey string `json:"api_key,omitempty"`
	// TimeoutSeconds is how long the engine may be silent, before the first
	// event of an answer or between two; 0 means 900.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// MaxAttempts is how often a call is tried in all, as long as nothing of an
	// answer has come; 0 means 3.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// BackoffSeconds is the wait before the second attempt, which doubles with
	// each further one; 0 means 0.1.
	BackoffSeconds float64 `json:"backoff_seconds,omitempty"`
	// MaxEventBytes bounds one event of a stream; 0 means 64 MiB.
	MaxEventBytes int `json:"max_event_bytes,omitempty"`
	// LogprobMode is the server's --logprobs-mode, which it does not tell; it is
	// recorded with each call.
	LogprobMode string `json:"logprob_mode,omitempty"`
}

type vllm struct {
	*client
	engine llm.Engine
}

// NewVLLM makes an Engine of a vLLM server. It does not connect yet.
func NewVLLM(c VLLMConfig) (Engine, error) {
	connected, err := newClient(connection{
		url: c.URL, apiKey: c.APIKey, timeout: c.TimeoutSeconds, backoff: c.BackoffSeconds,
		attempts: c.MaxAttempts, maxEventBytes: c.MaxEventBytes,
	})
	if err != nil {
		return nil, err
	}
	return &vllm{connected, llm.Engine{Kind: "vllm", URL: connected.url, LogprobMode: c.LogprobMode}}, nil
}

// vllmDialect is always streamed, so that ids come as they are sampled and
// leaving aborts.
func vllmDialect() dialect {
	return dialect{reasoningKey: "reasoning", stream: true, logprobs: true, flags: []string{"return_token_ids"}}
}

func (v *vllm) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return withRoom(ctx, req, v.generate)
}

func (v *vllm) generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	b := vllmDialect().chatBody(req)
	return v.answer(ctx, v.timeout, func(ctx context.Context, _ int) (reader, llm.Event, error) {
		return v.openStream(ctx, b, v.engine, req.TopLogprobs != nil, false)
	})
}

func (v *vllm) Probe(ctx context.Context) (Probe, error) {
	served, err := v.served(ctx)
	if err != nil {
		return Probe{}, err
	}
	reply, err := llm.Collect(v.Generate(ctx, probeRequest(served.ID)))
	if err != nil {
		return Probe{}, err
	}
	p := Probe{
		Engine: "vllm", URL: v.url, Version: v.version(ctx, "/version"), Model: served.ID, MaxContext: served.MaxModelLen,
		StreamsIDs: StreamsNo, Style: "chat_stream",
	}
	p.returned(reply)
	if p.SampledIDs {
		p.StreamsIDs = StreamsYes
	}
	_, err = v.CountTokens(ctx, probeRequest(served.ID))
	p.Tokenizer = err == nil
	return p, nil
}

// CountTokens is the length of the prompt as vLLM's /tokenize renders it.
func (v *vllm) CountTokens(ctx context.Context, req llm.Request) (int, error) {
	return v.countTokens(ctx, vllmDialect(), req, `,"add_generation_prompt":true`)
}
