package coordinator

import (
	"context"
	"fmt"
	"time"

	"polar"
	"polar/api"
)

// maxWait bounds how long a request may wait for something to happen.
const maxWait = 5 * time.Minute

// Claim gives a node sessions to run. With none there it waits as long as the
// node is ready to; new work and a cancel for the node end the wait at once. A
// cancel is repeated in later replies until its session has ended.
func (c *Coordinator) Claim(ctx context.Context, req api.ClaimRequest) (api.ClaimReply, error) {
	if !polar.ValidID(req.Node.Node) {
		return api.ClaimReply{}, polar.Invalid("node.node_id", "%q is not an id", req.Node.Node)
	}
	c.nodes.seen(req.Node)
	defer c.nodes.polling(req.Node.Node)()
	var timeout <-chan time.Time
	last := req.Wait <= 0
	if !last {
		timer := time.NewTimer(min(req.Wait, maxWait))
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		wake := c.work.wait()
		reply, news, err := c.take(ctx, req)
		if err != nil || news || last {
			return reply, err
		}
		select {
		case <-wake:
		case <-timeout:
			last = true
		case <-c.stopped:
			last = true
		case <-ctx.Done():
			return api.ClaimReply{}, ctx.Err()
		}
	}
}

// take looks once for work; news says that there is some.
func (c *Coordinator) take(ctx context.Context, req api.ClaimRequest) (reply api.ClaimReply, news bool, err error) {
	if reply.Cancel, err = c.cfg.Store.Cancels(ctx, req.Node.Node); err != nil {
		return api.ClaimReply{}, false, err
	}
	news = c.nodes.tell(req.Node.Node, reply.Cancel)
	if req.Room <= 0 || c.nodes.draining(req.Node.Node) {
		return reply, news, nil
	}
	if reply.Sessions, err = c.cfg.Store.Claim(ctx, req.Node.Node, req.Room, c.cfg.Lease); err != nil {
		return api.ClaimReply{}, false, err
	}
	for i := range reply.Sessions {
		seed(&reply.Sessions[i])
	}
	return reply, news || len(reply.Sessions) > 0, nil
}

// seed gives each sample of an evaluation a sampling seed of its own.
func seed(a *api.Assignment) {
	if h, err := a.Task.Hints(); err == nil && h.SeedBase != nil {
		n := *h.SeedBase + int64(a.Session.Index)
		a.Task.Sampling.Seed = &n
	}
}

// Renew keeps a node's leases and records how far its sessions are.
func (c *Coordinator) Renew(ctx context.Context, req api.RenewRequest) (api.RenewReply, error) {
	if !polar.ValidID(req.Node.Node) {
		return api.RenewReply{}, polar.Invalid("node.node_id", "%q is not an id", req.Node.Node)
	}
	for i, r := range req.Renewals {
		switch r.Status {
		case polar.Registered, polar.Initializing, polar.Ready, polar.Running, polar.PostRun, polar.Building, polar.Evaluating:
		case polar.Completed, polar.Errored, polar.TimedOut, polar.Cancelled:
			return api.RenewReply{}, polar.Invalid(fmt.Sprintf("renewals[%d].status", i), "%s is an end: report the session instead", r.Status)
		default:
			return api.RenewReply{}, polar.Invalid(fmt.Sprintf("renewals[%d].status", i), "%q is not known", r.Status)
		}
	}
	c.nodes.seen(req.Node)
	if len(req.Renewals) == 0 {
		return api.RenewReply{}, nil
	}
	lost, err := c.cfg.Store.Renew(ctx, req.Node.Node, req.Renewals, c.cfg.Lease)
	if err != nil {
		return api.RenewReply{}, err
	}
	c.changed.send()
	return api.RenewReply{Lost: lost}, nil
}

// Release puts the sessions of a node that was started anew back into the
// queue. A node calls it before its first Claim.
func (c *Coordinator) Release(ctx context.Context, node string) error {
	c.nodes.fresh(node)
	n, err := c.cfg.Store.Release(ctx, node)
	if err != nil {
		return err
	}
	if n > 0 {
		c.cfg.Log.Info("sessions of a node that was started anew will run again", "node", node, "sessions", n)
		c.sessionsMoved()
	}
	return nil
}

// sessionsMoved wakes whoever may care that sessions changed hands or ended.
func (c *Coordinator) sessionsMoved() {
	c.work.send()
	c.changed.send()
	c.owed.send()
}

// expireLeases takes sessions from nodes that have fallen silent.
func (c *Coordinator) expireLeases(ctx context.Context) error {
	tick := time.NewTicker(min(time.Second, max(c.cfg.Lease/4, 10*time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		n, err := c.cfg.Store.Expire(ctx)
		if err != nil && ctx.Err() == nil {
			c.cfg.Log.Error("leases could not be expired", "error", err)
		}
		if n > 0 {
			c.cfg.Log.Warn("sessions lost their node", "sessions", n)
			c.sessionsMoved()
		}
	}
}
