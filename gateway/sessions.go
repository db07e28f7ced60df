package gateway

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	"polar"
	"polar/llm"
)

// digest is what keys are looked up by, so that the time a look-up takes says
// nothing of the key.
type digest [sha256.Size]byte

func digestOf(key string) digest { return sha256.Sum256([]byte(key)) }

// sessions are the open sessions, and the keys of some that have ended.
type sessions struct {
	mu    sync.RWMutex
	byKey map[digest]*session // nil while one is being opened
	byID  map[polar.SessionID]*session
	ended map[digest]struct{}
	// order lists ended keys from the oldest on, round and round.
	order []digest
	next  int
}

func newSessions(remember int) *sessions {
	return &sessions{
		byKey: map[digest]*session{}, byID: map[polar.SessionID]*session{},
		ended: map[digest]struct{}{}, order: make([]digest, 0, remember),
	}
}

// find gives the session that a caller's key opens.
func (t *sessions) find(key string) (*session, *llm.Error) {
	d := digestOf(key)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.byKey[d]; s != nil {
		return s, nil
	}
	if _, ok := t.ended[d]; ok {
		return nil, llm.Errorf(llm.SessionEnded, "the session has ended")
	}
	if key == "" {
		return nil, llm.Errorf(llm.UnknownKey, "no API key given: use the session's key")
	}
	return nil, llm.Errorf(llm.UnknownKey, "the API key is not that of a session")
}

func (t *sessions) get(key string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[digestOf(key)]
}

func (t *sessions) getID(id polar.SessionID) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

func (t *sessions) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byKey)
}

// list gives the open sessions in order of opening.
func (t *sessions) list() []*session {
	t.mu.RLock()
	all := slices.Collect(maps.Values(t.byKey))
	t.mu.RUnlock()
	all = slices.DeleteFunc(all, func(s *session) bool { return s == nil })
	slices.SortFunc(all, func(a, b *session) int {
		return cmp.Or(a.opened.Compare(b.opened), cmp.Compare(a.rec.Session, b.rec.Session))
	})
	return all
}

// reserve takes the key and the attempt, so that nobody else can while the log
// is opened.
func (t *sessions) reserve(s *session) error {
	d := digestOf(s.rec.Key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.byKey[d]; ok {
		return fmt.Errorf("%w: its key is in use", ErrSessionExists)
	}
	if _, ok := t.ended[d]; ok {
		return fmt.Errorf("%w: its key was used and has ended", ErrSessionExists)
	}
	if other := t.byID[s.rec.Session]; other != nil && other.rec.Attempt >= s.rec.Attempt {
		return fmt.Errorf("%w: attempt %d is open", ErrSessionExists, other.rec.Attempt)
	}
	t.byKey[d] = nil
	return nil
}

func (t *sessions) release(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, digestOf(s.rec.Key))
}

func (t *sessions) admit(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey[digestOf(s.rec.Key)] = s
	t.byID[s.rec.Session] = s
}

// forget takes an ended session out and remembers its key for a while.
func (t *sessions) forget(s *session) {
	d := digestOf(s.rec.Key)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, d)
	if t.byID[s.rec.Session] == s {
		delete(t.byID, s.rec.Session)
	}
	if len(t.order) < cap(t.order) {
		t.order = append(t.order, d)
	} else {
		delete(t.ended, t.order[t.next])
		t.order[t.next] = d
		t.next = (t.next + 1) % len(t.order)
	}
	t.ended[d] = struct{}{}
}
