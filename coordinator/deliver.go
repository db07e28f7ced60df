package coordinator

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"polar/api"
)

// outbox is what of the owed callbacks is under way.
type outbox struct {
	mu      sync.Mutex
	ids     map[int64]bool
	perHost map[string]int
	// ended are those that ended since the last look at what is due began: that
	// look may still show them as due.
	ended map[int64]bool
}

// begin reports whether a callback may start now.
func (o *outbox) begin(d api.Delivery, workers, perHost int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids[d.ID] || o.ended[d.ID] || len(o.ids) >= workers || o.perHost[d.Host] >= perHost {
		return false
	}
	o.ids[d.ID] = true
	o.perHost[d.Host]++
	return true
}

func (o *outbox) end(d api.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ids, d.ID)
	o.ended[d.ID] = true
	if o.perHost[d.Host]--; o.perHost[d.Host] == 0 {
		delete(o.perHost, d.Host)
	}
}

// look begins a look at what is due and lists the hosts that get no more at once.
func (o *outbox) look(perHost int) (busy []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.ended)
	for h, n := range o.perHost {
		if n >= perHost {
			busy = append(busy, h)
		}
	}
	return busy
}

// deliverAll pushes results to trainers until ctx ends.
func (c *Coordinator) deliverAll(ctx context.Context) error {
	out := &outbox{ids: map[int64]bool{}, perHost: map[string]int{}, ended: map[int64]bool{}}
	var workers sync.WaitGroup
	defer workers.Wait()
	for {
		wake := c.owed.wait()
		next, err := c.startDue(ctx, out, &workers)
		if err != nil && ctx.Err() == nil {
			c.cfg.Log.Error("owed callbacks could not be read", "error", err)
			next = time.Now().Add(time.Second)
		}
		timer := time.NewTimer(time.Hour)
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), 0))
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// startDue starts what is due and has a place, and says when more will be due.
func (c *Coordinator) startDue(ctx context.Context, out *outbox, workers *sync.WaitGroup) (next time.Time, err error) {
	for {
		due, next, err := c.cfg.Store.Due(ctx, out.look(c.cfg.Callbacks.PerHost), 4*c.cfg.Callbacks.Workers)
		if err != nil {
			return time.Time{}, err
		}
		started := 0
		for _, d := range due {
			if !out.begin(d, c.cfg.Callbacks.Workers, c.cfg.Callbacks.PerHost) {
				continue
			}
			started++
			workers.Go(func() {
				defer c.owed.send()
				defer out.end(d)
				c.deliver(ctx, d)
			})
		}
		if started == 0 {
			return next, nil
		}
	}
}

// deliver makes one try and records what became of it. A try that our own end
// cut short does not count.
func (c *Coordinator) deliver(ctx context.Context, d api.Delivery) {
	err := c.push(ctx, d)
	if err != nil && ctx.Err() != nil {
		return
	}
	log := c.cfg.Log.With("task", d.Task, "session", d.Session, "url", d.URL, "try", d.Tries+1)
	end := api.Settlement{Done: err == nil}
	if err != nil {
		end.Error = err.Error()
		pause := min(c.cfg.Callbacks.MinBackoff<<min(d.Tries, 20), c.cfg.Callbacks.MaxBackoff)
		pause = time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64()))
		end.Due = time.Now().Add(pause)
		end.GiveUp = !d.FirstTry.IsZero() && end.Due.Sub(d.FirstTry) > c.cfg.Callbacks.RetryFor
		if end.GiveUp {
			log.Error("callback was given up; the results can still be fetched", "error", err)
		} else {
			log.Warn("callback was not taken and will be tried again", "error", err, "in", pause)
		}
	}
	// What the receiver took must be on record even if we are ending.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	if err := c.cfg.Store.Settle(ctx, d.ID, end); err != nil {
		log.Error("callback could not be settled", "error", err)
	}
}

// push sends the results of a task, or of one session, to whom they are owed.
func (c *Coordinator) push(ctx context.Context, d api.Delivery) error {
	doc, key, err := c.owedBody(ctx, d)
	if err != nil {
		return err
	}
	size, err := doc.size()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, doc.reader())
	if err != nil {
		return err
	}
	// With a length, receivers that do not know chunked bodies can read it too.
	req.ContentLength = size
	for name, value := range d.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "polar")
	req.Header.Set("Idempotency-Key", key)
	resp, err := c.cfg.Callbacks.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver answered %s", resp.Status)
	}
	return nil
}

// owedBody is what a callback carries, and the key by which a receiver knows it
// again.
func (c *Coordinator) owedBody(ctx context.Context, d api.Delivery) (document, string, error) {
	if d.Session != "" {
		rec, err := c.cfg.Store.Session(ctx, d.Session)
		if err != nil {
			return document{}, "", err
		}
		if rec.Result == nil {
			return document{}, "", fmt.Errorf("session %s has no result", d.Session)
		}
		doc, err := c.single(ctx, *rec.Result)
		return doc, "session-" + string(d.Session), err
	}
	sum, results, err := c.cfg.Store.TaskResults(ctx, d.Task)
	if err != nil {
		return document{}, "", err
	}
	head := fmt.Appendf(nil, `{"task_id":%q,"status":%q,"results":`, sum.Task, sum.Status)
	doc, err := c.document(ctx, head, results, []byte(`,"result_paths":[]}`))
	return doc, "task-" + string(d.Task), err
}
