package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"polar/sandbox"
)

// errClosed is why a command ends when its sandbox closes.
var errClosed = errors.New("the sandbox is closed")

// place is one sandbox: a folder and the processes started for it.
type place struct {
	driver *driver
	base   string
	marker string
	env    map[string]string
	paths  sandbox.Paths
	tmp    string

	closeOnce sync.Once
	closing   chan struct{}
	busy      sync.WaitGroup // commands under way
	pumps     sync.WaitGroup // goroutines that drain output

	mu       sync.Mutex
	closed   bool
	commands int
	sessions map[int]bool // process sessions with members that may outlive their command
	drains   map[*os.File]bool

	removing sync.Mutex
	removed  bool
}

// Paths says where things are.
func (s *place) Paths() sandbox.Paths { return s.paths }

// begin registers a command and names it; false once the sandbox closes.
func (s *place) begin() (marker string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", false
	}
	s.busy.Add(1)
	s.commands++
	return s.marker + "/" + strconv.Itoa(s.commands), true
}

func (s *place) track(session int, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if alive {
		s.sessions[session] = true
	} else {
		delete(s.sessions, session)
	}
}

// Close ends every process of the sandbox and removes its folder.
func (s *place) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.closing)
	})
	s.removing.Lock()
	defer s.removing.Unlock()
	if s.removed {
		return nil
	}
	s.busy.Wait()
	s.mu.Lock()
	t := trail{marker: s.marker + "/", folder: s.base, sessions: s.sessions}
	s.mu.Unlock()
	err := endAll(ctx, t)
	s.mu.Lock()
	for r := range s.drains {
		_ = r.Close()
	}
	s.mu.Unlock()
	s.pumps.Wait()
	if err := errors.Join(err, removeTree(s.base)); err != nil {
		return fmt.Errorf("close sandbox: %w", err)
	}
	s.removed = true
	return nil
}
