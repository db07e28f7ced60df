package backend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"polar/llm"
)

// SGLangConfig says where an SGLang server or router is and how to ask it.
type SGLangConfig struct {
	// URL is the server's root; a /v1 at its end is taken off. The workers of a
	// router are called directly, because a router loses token ids.
	URL    string `json:"url"`
	APIKey string `json:"api_key,omitempty"`
	// TimeoutSeconds is how long the engine may be silent; 0 means 900, and 3600
	// where an answer comes in one piece.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// MaxAttempts, BackoffSeconds and MaxEventBytes are as in VLLMConfig; an
	// answer in one piece counts as one event.
	MaxAttempts    int     `json:"max_attempts,omitempty"`
	BackoffSeconds float64 `json:"backoff_seconds,omitempty"`
	MaxEventBytes  int     `json:"max_event_bytes,omitempty"`
	// Mode is how the engine is asked:
	//   - "auto", which "" means: over chat, streamed where the server gives all
	//     ids and logprobs with the end of a stream, in one piece where it gives
	//     them only so; and over /generate where chat has no ids at all. Probe
	//     finds out; until it has run, chat in one piece.
	//   - "chat": never over /generate.
	//   - "generate": over /generate wherever that can stand in for chat.
	//
	// /generate cannot for images, forced tool calls, response formats and
	// alternatives to sampled tokens: such calls are chats in any mode. It knows
	// nothing of the server's --sampling-defaults, so that a temperature nobody
	// gave is 1.
	Mode string `json:"mode,omitempty"`
	// ToolCallParser and ReasoningParser are the parsers for answers of
	// /generate; "" means what the server was started with.
	ToolCallParser  string `json:"tool_call_parser,omitempty"`
	ReasoningParser string `json:"reasoning_parser,omitempty"`
	// LogprobMode says what the server's logprobs are of, which it does not tell;
	// it is recorded with each call.
	LogprobMode string `json:"logprob_mode,omitempty"`
}

// The ways of asking an SGLang server.
const (
	styleWhole    = "chat_whole"  // chat in one piece, with ids
	styleStream   = "chat_stream" // chat streamed, the ids at its end
	styleGenerate = "generate"    // /tokenize and /generate, ids as they are sampled
	stylePlain    = "chat_no_ids" // chat streamed, no ids to be had
	wholeTimeout  = 3600 * time.Second
)

type sglang struct {
	*client
	workers *workers
	whole   time.Duration // how long an answer in one piece may take
}

// NewSGLang makes an Engine of an SGLang server or router. It does not connect
// yet.
func NewSGLang(c SGLangConfig) (Engine, error) {
	switch c.Mode {
	case "", "auto", "chat", "generate":
	default:
		return nil, fmt.Errorf("mode: is %q, must be auto, chat or generate", c.Mode)
	}
	connected, err := newClient(connection{
		url: c.URL, apiKey: c.APIKey, timeout: c.TimeoutSeconds, backoff: c.BackoffSeconds,
		attempts: c.MaxAttempts, maxEventBytes: c.MaxEventBytes,
	})
	if err != nil {
		return nil, err
	}
	return &sglang{
		client:  connected,
		workers: newWorkers(newSGLangServer(connected, c)),
		whole:   seconds(c.TimeoutSeconds, wholeTimeout),
	}, nil
}

func (s *sglang) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return withRoom(ctx, req, s.generate)
}

func (s *sglang) generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		servers := s.workers.order(ctx, req.Affinity)
		silent := s.timeout
		if style, _ := servers[0].style(req); style == styleWhole {
			silent = s.whole
		}
		events := s.answer(ctx, silent, func(ctx context.Context, attempt int) (reader, llm.Event, error) {
			server := servers[attempt%len(servers)]
			server.reconsider(ctx)
			style, can := server.style(req)
			r, first, err := server.open(ctx, style, can, req)
			if err != nil && ctx.Err() == nil && isServerFault(err) {
				server.avoid()
			}
			return r, first, err
		})
		for e, err := range events {
			if !yield(e, err) {
				return
			}
		}
	}
}

// isServerFault reports an error that another server may not have.
func isServerFault(err error) bool {
	f, refused := errors.AsType[*failure](err)
	return !refused || f.retry
}

// Probe asks every server in each way until one gives what training needs, and
// remembers that way.
func (s *sglang) Probe(ctx context.Context) (Probe, error) {
	servers := s.workers.order(ctx, "")
	if len(servers) == 1 && servers[0] == s.workers.root {
		return servers[0].probe(ctx)
	}
	var failed error
	endpoints := make([]Probe, len(servers))
	for i, server := range servers {
		p, err := server.probe(ctx)
		if err != nil {
			failed = err
			p = Probe{Engine: "sglang", URL: server.url, Error: err.Error()}
		}
		endpoints[i] = p
	}
	p := together("sglang", s.url, endpoints)
	if p.Model == "" {
		return Probe{}, failed
	}
	return p, nil
}

// CountTokens is the length of the prompt as SGLang's /tokenize renders it. One
// from before v0.5.12 takes no conversation, and misses a prompt.
func (s *sglang) CountTokens(ctx context.Context, req llm.Request) (int, error) {
	server := s.workers.order(ctx, req.Affinity)[0]
	known := server.known.Load()
	unsupported := fmt.Errorf("count tokens at %s: %w", server.url, errors.ErrUnsupported)
	if known != nil && !known.tokenizer {
		return 0, unsupported
	}
	n, err := server.countTokens(ctx, sglangDialect(false), req, "")
	if known == nil && isRefusal(err) && strings.Contains(strings.ToLower(err.Error()), "field required") {
		return 0, unsupported
	}
	return n, err
}
