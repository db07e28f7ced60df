package coordinator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"polar"
	"polar/api"
)

const (
	pingEvery  = 15 * time.Second // silence that proxies and clients bear
	eventBatch = 500
	writeLimit = 30 * time.Second // for a reader that does not read
)

// getEvents streams what happens. It begins after the event that Last-Event-ID
// or ?after names, else with what comes next.
func (c *Coordinator) getEvents(w http.ResponseWriter, r *http.Request) error {
	oldest, newest, err := c.cfg.Store.EventRange(r.Context())
	if err != nil {
		return err
	}
	after := newest
	from := r.URL.Query().Get("after")
	if s := r.Header.Get("Last-Event-ID"); s != "" {
		from = s
	}
	if from != "" {
		if after, err = strconv.ParseInt(from, 10, 64); err != nil || after < 0 {
			return polar.Invalid("after", "%q is not the id of an event", from)
		}
		after = min(after, newest) // an id of another store would wait for ever
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out := eventWriter{w: w, rc: http.NewResponseController(w)}
	// A reader that was away for longer than events are kept learns it here.
	out.write(after, "hello", fmt.Appendf(nil, `{"after":%d,"oldest":%d,"newest":%d}`, after, oldest, newest))
	out.flush()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for out.err == nil {
		wake := c.changed.wait()
		events, err := c.cfg.Store.Events(r.Context(), after, eventBatch)
		if err != nil {
			if r.Context().Err() == nil {
				c.cfg.Log.Error("event stream was cut", "error", err)
			}
			return nil // the client comes back with the id it has
		}
		for _, e := range events {
			data, err := encode(e)
			if err != nil {
				return nil
			}
			out.write(e.ID, e.Type, data)
			after = e.ID
		}
		if len(events) > 0 {
			out.flush()
		}
		if len(events) == eventBatch {
			continue
		}
		select {
		case <-wake:
		case <-ping.C:
			out.write(after, "ping", []byte(`{}`))
			out.flush()
		case <-r.Context().Done():
			return nil
		case <-c.stopped:
			return nil
		}
	}
	return nil
}

// eventWriter writes server-sent events and remembers the first error.
type eventWriter struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error
}

func (e *eventWriter) write(id int64, kind string, data []byte) {
	if e.err == nil {
		_ = e.rc.SetWriteDeadline(time.Now().Add(writeLimit)) // not every writer has one
		_, e.err = fmt.Fprintf(e.w, "id: %d\nevent: %s\ndata: %s\n\n", id, kind, data)
	}
}

func (e *eventWriter) flush() {
	if e.err == nil {
		e.err = e.rc.Flush()
	}
}

// getResults gives a consumer the results it has not acknowledged, and waits
// for some if there are none. Without a consumer, ?after= reads without
// acknowledging.
func (c *Coordinator) getResults(w http.ResponseWriter, r *http.Request) error {
	if q := r.URL.Query(); q.Has("after") && !q.Has("consumer") {
		return c.listResults(w, r)
	}
	consumer := r.URL.Query().Get("consumer")
	if !polar.ValidID(consumer) {
		return polar.Invalid("consumer", "%q is not a name of letters, digits, '_', '.' and '-'", consumer)
	}
	n, err := limit(r, 100, 1000)
	if err != nil {
		return err
	}
	patience, err := wait(r)
	if err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		wake := c.changed.wait()
		results, cursor, err := c.cfg.Store.Results(r.Context(), consumer, n)
		if err != nil {
			return err
		}
		if len(results) == 0 && patience > 0 && c.until(r.Context(), wake, timer.C) {
			continue
		}
		d, err := c.document(r.Context(), []byte(`{"results":`), results, fmt.Appendf(nil, `,"cursor":%d}`+"\n", cursor))
		if err != nil {
			return err
		}
		c.stream(w, r, d)
		return nil
	}
}

// listResults gives the results after a place, of one task if one is named. The
// places come first, so that a reader can take one result after another.
func (c *Coordinator) listResults(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	after, err := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil || after < 0 {
		return polar.Invalid("after", "%q is not the number of a result", q.Get("after"))
	}
	if q.Has("wait") {
		return polar.Invalid("wait", "is for a consumer; ?after= answers at once")
	}
	task := q.Get("task")
	if task != "" && !polar.ValidID(task) {
		return polar.Invalid("task", "%q is not the id of a task", task)
	}
	n, err := limit(r, 100, 1000)
	if err != nil {
		return err
	}
	placed, newest, err := c.cfg.Store.ResultsAfter(r.Context(), after, polar.TaskID(task), n)
	if err != nil {
		return err
	}
	results := make([]api.StoredResult, len(placed))
	places := make([]api.ListedResult, len(placed))
	for i, p := range placed {
		results[i], places[i] = p.StoredResult, api.ListedResult{Seq: p.Seq, ResultPlace: p.ResultPlace}
		after = p.Seq
	}
	head, err := encode(places)
	if err != nil {
		return err
	}
	head = fmt.Appendf(nil, `{"places":%s,"cursor":%d,"newest":%d,"results":`, head, after, newest)
	d, err := c.document(r.Context(), head, results, []byte("}\n"))
	if err != nil {
		return err
	}
	c.stream(w, r, d)
	return nil
}

func (c *Coordinator) postAck(w http.ResponseWriter, r *http.Request) error {
	body, err := c.readBody(w, r)
	if err != nil {
		return err
	}
	var ack api.AckRequest
	if err := polar.DecodeStrict(body, &ack); err != nil {
		return err
	}
	if !polar.ValidID(ack.Consumer) {
		return polar.Invalid("consumer", "%q is not a name of letters, digits, '_', '.' and '-'", ack.Consumer)
	}
	if err := c.cfg.Store.Ack(r.Context(), ack.Consumer, ack.Cursor); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, json.RawMessage(body))
	return nil
}
