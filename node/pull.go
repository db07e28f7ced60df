package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"polar"
	"polar/api"
)

// attempt names one try at a session.
type attempt struct {
	session polar.SessionID
	number  int
}

// session is an attempt that the node holds.
type session struct {
	api.Assignment
	log *slog.Logger
	// cancel stops the session on behalf of the caller: it is still reported.
	// drop lets go of it: it is not.
	cancel, drop context.CancelCauseFunc

	// Guarded by Node.mu.
	phase         phase
	status        polar.Status
	stopped, lost bool
}

// phase is how far a session is, as far as room for others goes.
type phase int

const (
	phaseInit phase = iota
	phaseReady
	phaseRun
	phasePostrun
)

// cancelled is why a session ends when the caller no longer wants it.
type cancelled struct{ kind string }

func (c *cancelled) Error() string { return api.Stopped(c.kind).Message }

var errLost = errors.New("the lease was lost")

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// idleReplyPause keeps a server that answers at once with nothing new from
	// being asked in a tight loop.
	idleReplyPause = 50 * time.Millisecond
)

// pull asks for work as long as ctx lives and runs what it gets in all.
func (n *Node) pull(ctx context.Context, all *sync.WaitGroup) {
	backoff := minBackoff
	for ctx.Err() == nil {
		reply, err := n.claim(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errRoom):
			continue
		case err != nil:
			n.log.Warn("claim", "error", err)
			wait(ctx, backoff)
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		backoff = minBackoff
		news := false
		for _, a := range reply.Sessions {
			news = n.begin(ctx, all, a) || news
		}
		if !n.stop(reply.Cancel) && !news {
			wait(ctx, idleReplyPause)
		}
	}
}

// errRoom ends a claim that was made when there was no room and now there is.
var errRoom = errors.New("there is room")

// claim makes one request. Without room it still asks, to hear what to stop.
func (n *Node) claim(ctx context.Context) (api.ClaimReply, error) {
	room, moved := n.room()
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if room == 0 { // no session can be in the reply, so it may be thrown away
		watched := make(chan struct{})
		defer func() { cancel(nil); <-watched }()
		go func() {
			defer close(watched)
			n.untilRoom(asking, moved)
			if asking.Err() == nil {
				cancel(errRoom)
			}
		}()
	}
	reply, err := n.cfg.Work.Claim(asking, api.ClaimRequest{Node: n.Info(), Room: room, Wait: n.cfg.ClaimWait})
	if err != nil && errors.Is(context.Cause(asking), errRoom) {
		return reply, errRoom
	}
	return reply, err
}

func (n *Node) untilRoom(ctx context.Context, moved <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
		var room int
		if room, moved = n.room(); room > 0 {
			return
		}
	}
}

// room is how many sessions could be started on now: as many as there are init
// slots, no more than the run slots and the ready buffer will take, and none
// while sessions pile up behind POSTRUN. The channel is closed when the answer
// may have changed.
func (n *Node) room() (int, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var in [phasePostrun + 1]int
	for _, s := range n.held {
		in[s.phase]++
	}
	c := n.cfg
	room := min(
		c.MaxInit-in[phaseInit],
		c.ReadyBuffer+c.MaxRun-in[phaseRun]-in[phaseReady]-in[phaseInit],
		c.ReadyBuffer+c.MaxRun+2*c.MaxPostrun-len(n.held),
	)
	return max(0, room), n.moved
}

// begin takes a session on; false if the node already has it.
func (n *Node) begin(ctx context.Context, all *sync.WaitGroup, a api.Assignment) bool {
	key := attempt{a.Session.ID, a.Session.Attempt}
	owned, drop := context.WithCancelCause(ctx)
	wanted, cancel := context.WithCancelCause(owned)
	s := &session{
		Assignment: a, cancel: cancel, drop: drop, status: polar.Registered,
		log: n.log.With("session", a.Session.ID, "task", a.Session.Task, "attempt", a.Session.Attempt),
	}
	n.mu.Lock()
	_, known := n.held[key]
	if !known {
		n.held[key] = s
	}
	n.mu.Unlock()
	if known {
		drop(nil)
		return false
	}
	all.Go(func() {
		defer drop(nil)
		defer n.forget(key)
		result, ours := n.live(owned, wanted, s)
		if !ours {
			s.log.Info("session let go", "cause", context.Cause(owned))
			return
		}
		n.report(owned, s, result)
	})
	return true
}

func (n *Node) forget(key attempt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.held, key)
	delete(n.changed, key)
	n.moves()
}

// move records that a session has come to a stage and lets the server know.
func (n *Node) move(s *session, p phase, status polar.Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.phase != p {
		s.phase = p
		n.moves()
	}
	if s.status != status {
		s.status = status
		n.changed[attempt{s.Session.ID, s.Session.Attempt}] = true
		n.wakeRenewals()
	}
}

// moves wakes who waits for room. The lock is held.
func (n *Node) moves() {
	close(n.moved)
	n.moved = make(chan struct{})
}

// stop cancels sessions and reports whether any of them was not yet.
func (n *Node) stop(list []api.Cancel) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	news := false
	for _, c := range list {
		s := n.held[attempt{c.Session, c.Attempt}]
		if s == nil || s.stopped {
			continue
		}
		s.stopped, news = true, true
		s.cancel(&cancelled{kind: c.Kind})
	}
	return news
}

// wait pauses unless ctx ends first.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
