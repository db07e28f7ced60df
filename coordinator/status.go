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

func (c *Coordinator) getHealth(w http.ResponseWriter, r *http.Request) error {
	health := api.Health{Status: "ok"}
	for _, n := range c.nodes.list() {
		if n.Healthy {
			health.Nodes++
		}
	}
	status := http.StatusOK
	if err := c.cfg.Store.Health(r.Context()); err != nil {
		health.Status, health.Reason, status = "unavailable", err.Error(), http.StatusServiceUnavailable
	}
	writeJSON(w, status, health)
	return nil
}

func (c *Coordinator) getStatus(w http.ResponseWriter, r *http.Request) error {
	counts, err := c.cfg.Store.Counts(r.Context())
	if err != nil {
		return err
	}
	status := api.ServerStatus{Nodes: c.nodes.list()}
	status.Pipeline.Pending, status.Pipeline.Running, status.Pipeline.Ended = counts.Pending, counts.Running, counts.Ended
	writeJSON(w, http.StatusOK, status)
	return nil
}

// getTask tells how a task stands, with its whole results unless less is asked
// for.
func (c *Coordinator) getTask(w http.ResponseWriter, r *http.Request) error {
	return c.writeTask(w, r, api.ResultsFull)
}

// writeTask tells how a task stands, with the results that the query asks for.
// Whole ones are written one after another from where they are stored.
func (c *Coordinator) writeTask(w http.ResponseWriter, r *http.Request, mode string) error {
	id := polar.TaskID(r.PathValue("id"))
	if s := r.URL.Query().Get("results"); s != "" {
		mode = s
	}
	switch mode {
	case api.ResultsNone:
		sum, err := c.cfg.Store.Task(r.Context(), id)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, statusOf(sum))
		return nil
	case api.ResultsSummary, api.ResultsFull:
	default:
		return polar.Invalid("results", "%q is not known; known: none, summary, full", mode)
	}
	sum, results, err := c.cfg.Store.TaskResults(r.Context(), id)
	if err != nil {
		return err
	}
	if mode == api.ResultsSummary {
		status := statusOf(sum)
		for _, res := range results {
			raw, err := encode(res.Summary)
			if err != nil {
				return err
			}
			status.Results = append(status.Results, raw)
		}
		writeJSON(w, http.StatusOK, status)
		return nil
	}
	head := fmt.Appendf(nil, `{"task_id":%q,"status":%q,"total_sessions":%d,"completed_sessions":%d,"results":`,
		id, sum.Status, sum.Total, sum.Completed)
	d, err := c.document(r.Context(), head, results, []byte(`,"result_paths":[]}`+"\n"))
	if err != nil {
		return err
	}
	c.stream(w, r, d)
	return nil
}

// statusOf is how a task stands, without results.
func statusOf(sum api.TaskSummary) api.TaskStatus {
	return api.TaskStatus{
		Task: sum.Task, Status: sum.Status, Total: sum.Total, Completed: sum.Completed,
		Results: []json.RawMessage{}, Paths: []string{},
	}
}

// getTasks lists tasks, the newest first.
func (c *Coordinator) getTasks(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	n, err := limit(r, 200, 1000)
	if err != nil {
		return err
	}
	f := api.TaskFilter{Status: q.Get("status"), Harness: q.Get("harness"), Limit: n}
	switch f.Status {
	case "", api.TaskRunning, api.TaskCompleted, api.TaskFailed, api.TaskCancelling, api.TaskCancelled:
	default:
		return polar.Invalid("status", "%q is not known; known: running, completed, failed, cancelling, cancelled", f.Status)
	}
	if s := q.Get("since"); s != "" {
		if f.Since, err = time.Parse(time.RFC3339, s); err != nil {
			unix, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return polar.Invalid("since", "%q is neither a time such as 2026-01-02T15:04:05Z nor seconds since 1970", s)
			}
			f.Since = time.UnixMilli(int64(unix * 1000))
		}
	}
	tasks, err := c.cfg.Store.Tasks(r.Context(), f)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, orEmpty(tasks))
	return nil
}

func (c *Coordinator) getSessions(w http.ResponseWriter, r *http.Request) error {
	sessions, err := c.cfg.Store.Sessions(r.Context(), polar.TaskID(r.PathValue("id")))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, orEmpty(sessions))
	return nil
}

func (c *Coordinator) getNodes(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, c.nodes.list())
	return nil
}

func (c *Coordinator) getNode(w http.ResponseWriter, r *http.Request) error {
	for _, n := range c.nodes.list() {
		if n.Node == r.PathValue("id") {
			writeJSON(w, http.StatusOK, n)
			return nil
		}
	}
	return fmt.Errorf("node %s: %w", r.PathValue("id"), api.ErrNotFound)
}

// deleteNode drains a node: what it holds it may finish, more it does not get.
func (c *Coordinator) deleteNode(w http.ResponseWriter, r *http.Request) error {
	if c.nodes.drain(r.PathValue("id")) {
		c.cfg.Log.Info("node is drained", "node", r.PathValue("id"))
	}
	return c.getNode(w, r)
}

// orEmpty makes JSON's [] of no list.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
