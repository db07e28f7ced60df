package gateway

import (
	"context"
	"errors"
	"net/http"

	"polar/llm"
)

// TokenCounter is a Protocol that can be asked how many tokens a prompt has: by
// routes of their own, or by Routes with a request that Decode marks CountOnly.
type TokenCounter interface {
	CountRoutes() []string
	// DecodeCount is Decode for the body of a request by CountRoutes.
	DecodeCount(r *http.Request, body []byte) (llm.Request, error)
	Count(w http.ResponseWriter, req llm.Request, tokens int)
}

// Tokenizer is a Backend that can count the tokens of a prompt. Its error may
// be errors.ErrUnsupported.
type Tokenizer interface {
	CountTokens(ctx context.Context, req llm.Request) (int, error)
}

// countRoute serves a route on which tokens are counted.
func (g *Gateway) countRoute(w http.ResponseWriter, r *http.Request, p Protocol, counter TokenCounter) {
	s, refused := g.session(r)
	if refused != nil {
		p.Fail(w, refused)
		return
	}
	req, err := g.read(w, r, counter.DecodeCount)
	if err != nil {
		p.Fail(w, g.explain(err))
		return
	}
	g.count(r.Context(), w, s, p, req)
}

// count answers how long a prompt is. That is no turn of the session, costs
// nothing of its budget and is not recorded.
func (g *Gateway) count(ctx context.Context, w http.ResponseWriter, s *session, p Protocol, req llm.Request) {
	req.CountOnly = true
	req.Affinity = string(s.rec.Session)
	if g.cfg.Model != "" {
		req.Model = g.cfg.Model
	}
	req, err := s.converse(&g.cfg, req)
	tokens := 0
	if err == nil {
		tokens, err = g.countTokens(ctx, req)
	}
	counter, ok := p.(TokenCounter)
	if err == nil && !ok {
		err = errors.ErrUnsupported
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		// A 404 is not tried again by the clients there are, as a 501 would be.
		p.Fail(w, llm.Errorf(llm.NotFound, "the engine does not count tokens"))
	case err != nil:
		p.Fail(w, g.explain(err))
	default:
		counter.Count(w, req, tokens)
	}
}

// countTokens asks the engine's own tokenizer: by an estimate harnesses would
// compact too early or too late.
func (g *Gateway) countTokens(ctx context.Context, req llm.Request) (int, error) {
	tokenizer, ok := g.cfg.Backend.(Tokenizer)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return tokenizer.CountTokens(ctx, req)
}
