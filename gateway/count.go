package gateway

import (
	"context"
	"net/http"

	"polar/llm"
)

// TokenCounter is a Protocol with routes that count the tokens of a prompt.
type TokenCounter interface {
	CountRoutes() []string
	// DecodeCount is Decode for the body of such a request.
	DecodeCount(r *http.Request, body []byte) (llm.Request, error)
	Count(w http.ResponseWriter, req llm.Request, tokens int)
}

// Tokenizer is a Backend that can count the tokens of a prompt.
type Tokenizer interface {
	CountTokens(ctx context.Context, req llm.Request) (int, error)
}

// count answers how long a prompt is. It takes a session's key, is no turn of
// the session and is not recorded.
func (g *Gateway) count(w http.ResponseWriter, r *http.Request, p Protocol, counter TokenCounter) {
	s, refused := g.session(r)
	if refused != nil {
		p.Fail(w, refused)
		return
	}
	req, err := g.read(w, r, counter.DecodeCount)
	if err == nil {
		req, err = s.converse(&g.cfg, req)
	}
	tokens := 0
	if err == nil {
		req.CountOnly = true
		req.Affinity = string(s.rec.Session)
		if g.cfg.Model != "" {
			req.Model = g.cfg.Model
		}
		tokens, err = g.countTokens(r.Context(), req)
	}
	if err != nil {
		p.Fail(w, g.explain(err))
		return
	}
	counter.Count(w, req, tokens)
}

// countTokens asks the engine's own tokenizer: an estimate would have harnesses
// compact too early or too late. That there is none is a 404, which clients do
// not try again.
func (g *Gateway) countTokens(ctx context.Context, req llm.Request) (int, error) {
	tokenizer, ok := g.cfg.Backend.(Tokenizer)
	if !ok {
		return 0, llm.Errorf(llm.NotFound, "the engine does not count tokens")
	}
	return tokenizer.CountTokens(ctx, req)
}
