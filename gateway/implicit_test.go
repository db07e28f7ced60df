package gateway_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"polar"
	"polar/gateway"
)

func slogDiscard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestKeysThatNobodyAnnounced(t *testing.T) {
	t.Parallel()
	var attempts sync.Map
	r := newRig(t, says(whole...), func(r *rig, c *gateway.Config) {
		c.AllowImplicit, c.MaxImplicit, c.ControlToken = true, 4, "secret"
		open := c.OpenLog
		c.OpenLog = func(id polar.SessionID, attempt int) (gateway.SessionLog, error) {
			switch {
			case id == "again" && attempt < 3: // of earlier runs of the server
				return nil, fmt.Errorf("begin: %w", fs.ErrExist)
			case id == "full":
				return nil, errors.New("no space")
			}
			attempts.Store(string(id), attempt)
			return open(id, attempt)
		}
	})
	r.open(polar.Recording{Session: "s1", Attempt: 1})
	ask := func(key string, status int, said string) {
		t.Helper()
		if got, body := r.do("POST", "/v1/chat/completions", hello, "Authorization", "Bearer "+key); got != status || !strings.Contains(body, said) {
			t.Errorf("%s: %d %s", key, got, body)
		}
	}
	ask("mine", 200, "Hello")
	ask("mine", 200, "Hello")
	ask("again", 200, "Hello")
	ask("sk ant/odd", 200, "Hello")
	ask("s1", 200, "Hello")
	ask("secret", 401, "invalid_api_key")
	ask("", 401, "invalid_api_key")
	ask("onemore", 429, "4 sessions are open")
	for id, attempt := range map[string]int{"mine": 1, "again": 3} {
		if got, ok := attempts.Load(id); !ok || got != attempt {
			t.Errorf("%s: attempt %v", id, got)
		}
	}
	named := 0
	attempts.Range(func(id, _ any) bool {
		if strings.HasPrefix(id.(string), "key-") {
			named++
		}
		return true
	})
	if named != 1 {
		t.Errorf("%d sessions are named after the digest of their key", named)
	}
	calls, err := r.gateway.Close(t.Context(), "mine")
	if err != nil || len(calls) != 2 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
	ask("mine", 403, "session_ended")
	ask("full", 503, "could not be opened")
}

func TestAKeyBeginsOneSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) { c.AllowImplicit = true })
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if status, body := r.do("POST", "/s/shared/v1/chat/completions", hello); status != 200 {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	all.Wait()
	if calls, err := r.gateway.Close(t.Context(), "shared"); err != nil || len(calls) != 16 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}

func TestASessionsIDIsNoKeyToIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) { c.AllowImplicit = true })
	if _, err := r.gateway.Open(t.Context(), polar.Recording{Session: "secretive", Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if status, body := r.do("POST", "/s/secretive/v1/chat/completions", hello); status != 401 {
		t.Errorf("%d %s", status, body)
	}
}
