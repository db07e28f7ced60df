package backend

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"polar/llm"
)

// OpenAIConfig says where a server is that speaks OpenAI's Chat Completions.
type OpenAIConfig struct {
	// URL is the server's root; a /v1 at its end is taken off.
	URL    string `json:"url"`
	APIKey string `json:"api_key,omitempty"`
	// TimeoutSeconds, MaxAttempts, BackoffSeconds and MaxEventBytes are as in
	// VLLMConfig.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	MaxAttempts    int     `json:"max_attempts,omitempty"`
	BackoffSeconds float64 `json:"backoff_seconds,omitempty"`
	MaxEventBytes  int     `json:"max_event_bytes,omitempty"`
	// PassExtra also sends what is not OpenAI's own, for a server that knows it:
	// top_k, chat_template_kwargs, reasoning and other fields of messages, and
	// every field that the harness sent.
	PassExtra bool `json:"pass_extra,omitempty"`
	// MaxTokensField is the name of the bound of an answer; "" means max_tokens.
	// OpenAI's reasoning models want max_completion_tokens.
	MaxTokensField string `json:"max_tokens_field,omitempty"`
}

type openAI struct {
	*client
	dialect dialect
}

// NewOpenAI makes an Engine of any server that speaks Chat Completions. It gives
// no token ids, so nothing it says can be trained on.
func NewOpenAI(c OpenAIConfig) (Engine, error) {
	switch c.MaxTokensField {
	case "", "max_tokens", "max_completion_tokens":
	default:
		return nil, fmt.Errorf("max_tokens_field: is %q, must be max_tokens or max_completion_tokens", c.MaxTokensField)
	}
	connected, err := newClient(connection{
		url: c.URL, apiKey: c.APIKey, timeout: c.TimeoutSeconds, backoff: c.BackoffSeconds,
		attempts: c.MaxAttempts, maxEventBytes: c.MaxEventBytes,
	})
	if err != nil {
		return nil, err
	}
	return &openAI{connected, dialect{
		reasoningKey: "reasoning_content", stream: true, standard: !c.PassExtra, maxTokensKey: c.MaxTokensField,
	}}, nil
}

func (o *openAI) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	b := o.dialect.chatBody(req)
	return o.answer(ctx, o.timeout, func(ctx context.Context, _ int) (reader, llm.Event, error) {
		return o.openStream(ctx, b, llm.Engine{Kind: "openai", URL: o.url}, req.TopLogprobs != nil, false)
	})
}

func (o *openAI) Probe(ctx context.Context) (Probe, error) {
	served, err := o.served(ctx)
	if err != nil {
		return Probe{}, err
	}
	reply, err := llm.Collect(o.Generate(ctx, probeRequest(served.ID)))
	if err != nil {
		return Probe{}, err
	}
	p := Probe{
		Engine: "openai", URL: o.url, Model: served.ID, MaxContext: served.MaxModelLen,
		StreamsIDs: StreamsNo, Style: "chat_stream",
	}
	p.returned(reply)
	return p, nil
}

// Health is nil if the server lists its models: that much every one does.
func (o *openAI) Health(ctx context.Context) error {
	_, err := o.models(ctx)
	return err
}

// CountTokens is errors.ErrUnsupported: OpenAI's API has no tokenizer.
func (o *openAI) CountTokens(context.Context, llm.Request) (int, error) {
	return 0, fmt.Errorf("count tokens at %s: %w", o.url, errors.ErrUnsupported)
}
