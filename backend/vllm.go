// Package backend asks inference engines and reads their answers with every
// token id and logprob they give. It knows the engines' wires and nothing of
// sessions or of what harnesses speak.
package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"polar/llm"
	"polar/rawjson"
	"polar/sse"
)

// Engine is an inference server that answers model calls.
type Engine interface {
	// Generate asks the engine and yields its answer as it comes. The last event
	// has the Finish and the Usage. An error is the last thing yielded: an
	// *llm.Error, or the cause for which ctx ended. Ending ctx, or the range,
	// closes the connection at once, so that the engine stops its work.
	Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error]
	// Models lists the models the engine serves.
	Models(ctx context.Context) ([]string, error)
	// Probe makes a real call of one token to see what the engine returns.
	Probe(ctx context.Context) (Probe, error)
	// Health is nil if the engine says it can serve.
	Health(ctx context.Context) error
	// Close lets go of the connections that are not in use.
	Close() error
}

// Probe is what an engine returned for a call of one token.
type Probe struct {
	Model      string `json:"model"`
	PromptIDs  bool   `json:"prompt_ids"`
	SampledIDs bool   `json:"sampled_ids"`
	Logprobs   bool   `json:"logprobs"`
}

// Missing names what training needs and the engine did not return; empty if it
// returned everything.
func (p Probe) Missing() string {
	var missing []string
	for _, part := range []struct {
		name  string
		there bool
	}{{"prompt ids", p.PromptIDs}, {"sampled ids", p.SampledIDs}, {"logprobs", p.Logprobs}} {
		if !part.there {
			missing = append(missing, part.name)
		}
	}
	return strings.Join(missing, ", ")
}

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

// Connections are kept open for as many calls as are likely at a time: opening
// one for each call would cost more than the call.
const (
	maxIdleConnections = 8192
	idleTimeout        = 90 * time.Second
	dialTimeout        = 10 * time.Second
	connectionBuffer   = 16 << 10
	maxErrorBytes      = 64 << 10
	maxListBytes       = 4 << 20
)

type vllm struct {
	url      string
	apiKey   string
	timeout  time.Duration
	attempts int
	backoff  time.Duration
	events   sse.Config
	engine   llm.Engine
	http     *http.Client
	pool     *http.Transport
}

// NewVLLM makes an Engine of a vLLM server. It does not connect yet.
func NewVLLM(c VLLMConfig) (Engine, error) {
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return nil, fmt.Errorf("url: missing")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("url: %q is not an http or https URL", c.URL)
	case c.TimeoutSeconds < 0:
		return nil, fmt.Errorf("timeout_seconds: must not be negative")
	case c.MaxAttempts < 0:
		return nil, fmt.Errorf("max_attempts: must not be negative")
	case c.BackoffSeconds < 0:
		return nil, fmt.Errorf("backoff_seconds: must not be negative")
	}
	root := strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/v1")
	pool := &http.Transport{
		// No proxy: the engine is ours, and a proxy would hold its stream back.
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   maxIdleConnections,
		IdleConnTimeout:       idleTimeout,
		TLSHandshakeTimeout:   dialTimeout,
		ExpectContinueTimeout: time.Second,
		ReadBufferSize:        connectionBuffer,
		WriteBufferSize:       connectionBuffer,
	}
	return &vllm{
		url:      root,
		apiKey:   c.APIKey,
		timeout:  seconds(c.TimeoutSeconds, 900*time.Second),
		attempts: or(c.MaxAttempts, 3),
		backoff:  seconds(c.BackoffSeconds, 100*time.Millisecond),
		events:   sse.Config{MaxEventBytes: c.MaxEventBytes, Buffers: &sse.Buffers{}},
		engine:   llm.Engine{Kind: "vllm", URL: root, LogprobMode: c.LogprobMode},
		http:     &http.Client{Transport: pool},
		pool:     pool,
	}, nil
}

func seconds(s float64, otherwise time.Duration) time.Duration {
	return or(time.Duration(s*float64(time.Second)), otherwise)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (v *vllm) Close() error {
	v.pool.CloseIdleConnections()
	return nil
}

func (v *vllm) Models(ctx context.Context) ([]string, error) {
	body, err := v.get(ctx, "/v1/models")
	if err != nil {
		return nil, err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("list models: %w", err)
	}
	names := make([]string, len(list.Data))
	for i, m := range list.Data {
		names[i] = m.ID
	}
	return names, nil
}

func (v *vllm) Health(ctx context.Context) error {
	_, err := v.get(ctx, "/health")
	return err
}

func (v *vllm) Probe(ctx context.Context) (Probe, error) {
	models, err := v.Models(ctx)
	if err != nil {
		return Probe{}, err
	}
	if len(models) == 0 {
		return Probe{}, llm.Errorf(llm.EngineFailed, "engine %s serves no model", v.url)
	}
	one := 1
	reply, err := llm.Collect(v.Generate(ctx, llm.Request{
		Model:    models[0],
		Messages: []llm.Message{{Role: "user", Content: rawjson.Quote("Say hello.")}},
		Sampling: llm.Sampling{MaxTokens: &one},
	}))
	if err != nil {
		return Probe{}, err
	}
	p := Probe{Model: models[0], PromptIDs: len(reply.PromptIDs) > 0, SampledIDs: len(reply.Tokens) > 0}
	for _, token := range reply.Tokens {
		p.Logprobs = token.HasLogprob()
	}
	return p, nil
}

// get reads a small answer whole.
func (v *vllm) get(ctx context.Context, path string) (body []byte, err error) {
	resp, err := v.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, v.explain(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxListBytes))
	if err != nil {
		return nil, v.explain(ctx, err)
	}
	return body, nil
}
