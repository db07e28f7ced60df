package node

import (
	"context"
	"time"

	"polar"
	"polar/api"
)

// idleLease is what renewals go by before the first lease is known.
const idleLease = 15 * time.Second

// renewAll keeps the leases as long as ctx lives: all of them at a third of the
// shortest, and those of sessions whose state has changed at once.
func (n *Node) renewAll(ctx context.Context) {
	for ctx.Err() == nil {
		due := time.NewTimer(n.shortestLease() / 3)
		everything := false
		select {
		case <-ctx.Done():
		case <-n.renew:
		case <-due.C:
			everything = true
		}
		due.Stop()
		if ctx.Err() != nil {
			return
		}
		if err := n.renewOnce(ctx, everything); err != nil && ctx.Err() == nil {
			n.log.Warn("renew leases", "error", err)
			wait(ctx, min(time.Second, n.shortestLease()/6))
			n.wakeRenewals()
		}
	}
}

func (n *Node) wakeRenewals() {
	select {
	case n.renew <- struct{}{}:
	default:
	}
}

func (n *Node) shortestLease() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	shortest := idleLease
	for _, s := range n.held {
		if s.Lease > 0 {
			shortest = min(shortest, s.Lease)
		}
	}
	return shortest
}

// renewOnce tells the server how sessions stand. What could not be told stays
// to be told.
func (n *Node) renewOnce(ctx context.Context, everything bool) error {
	n.mu.Lock()
	sent := map[attempt]polar.Status{}
	for key, s := range n.held {
		if !s.lost && (everything || n.changed[key]) {
			sent[key] = s.status
		}
	}
	n.mu.Unlock()
	if len(sent) == 0 {
		return nil
	}
	req := api.RenewRequest{Node: n.Info()}
	for key, status := range sent {
		req.Renewals = append(req.Renewals, api.Renewal{Session: key.session, Attempt: key.number, Status: status})
	}
	reply, err := n.cfg.Work.Renew(ctx, req)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, status := range sent {
		if s := n.held[key]; s != nil && s.status == status {
			delete(n.changed, key)
		}
	}
	for _, id := range reply.Lost {
		for key := range sent {
			if s := n.held[key]; s != nil && key.session == id {
				s.lost = true
				s.drop(errLost)
			}
		}
	}
	return nil
}
