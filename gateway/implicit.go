package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"sync"

	"polar"
	"polar/llm"
)

// implicit opens sessions for keys that nobody announced.
type implicit struct {
	mu sync.Mutex // held while one is opened, so that a key is opened once
}

// session finds the session that a request belongs to by the key it shows.
func (g *Gateway) session(r *http.Request) (*session, *llm.Error) {
	key := credential(r)
	s, refused := g.sessions.find(key)
	if refused == nil || refused.Kind != llm.UnknownKey || !g.cfg.AllowImplicit || key == "" || key == g.cfg.ControlToken {
		return s, refused
	}
	g.implicit.mu.Lock()
	defer g.implicit.mu.Unlock()
	if s, again := g.sessions.find(key); again == nil || again.Kind != llm.UnknownKey {
		return s, again
	}
	if g.sessions.len() >= g.cfg.MaxImplicit {
		return nil, llm.Errorf(llm.RateLimited, "%d sessions are open; end one before another begins", g.cfg.MaxImplicit)
	}
	if err := g.openImplicit(r.Context(), key); err != nil {
		if errors.Is(err, ErrSessionExists) {
			return nil, refused
		}
		g.log.Error("session not opened", "error", err)
		return nil, llm.Errorf(llm.StorageFailed, "the session could not be opened")
	}
	return g.sessions.find(key)
}

// maxImplicitAttempts bounds how often a key may come again after a restart.
const maxImplicitAttempts = 10_000

// openImplicit opens a session named after its key. An attempt is recorded
// once: after a restart the key begins the next one.
func (g *Gateway) openImplicit(ctx context.Context, key string) error {
	id := polar.SessionID(key)
	if !polar.ValidID(key) {
		sum := digestOf(key)
		id = polar.SessionID("key-" + hex.EncodeToString(sum[:8]))
	}
	for attempt := 1; ; attempt++ {
		_, err := g.Open(ctx, polar.Recording{Session: id, Attempt: attempt, Key: key})
		if !errors.Is(err, fs.ErrExist) || attempt == maxImplicitAttempts {
			return err
		}
	}
}
