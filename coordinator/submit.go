package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"polar"
	"polar/api"
	"polar/rawjson"
)

// postTask takes a task: it is checked by opening every plug-in dry, and is
// durable when the reply is sent.
func (c *Coordinator) postTask(w http.ResponseWriter, r *http.Request) error {
	body, err := c.readBody(w, r)
	if err != nil {
		return err
	}
	reply, err := c.Submit(r.Context(), body)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// Submit takes a task as JSON. The same task again is answered as the first
// time.
func (c *Coordinator) Submit(ctx context.Context, body []byte) (api.SubmitReply, error) {
	task, warnings, err := c.decodeTask(body)
	if err != nil {
		return api.SubmitReply{}, err
	}
	if err := checkHeaders(task.Callback); err != nil {
		return api.SubmitReply{}, err
	}
	if err := c.cfg.Check(task); err != nil {
		if _, ok := errors.AsType[*polar.FieldError](err); ok {
			return api.SubmitReply{}, err
		}
		return api.SubmitReply{}, &httpError{http.StatusBadRequest, err.Error()}
	}
	created, err := c.cfg.Store.Enqueue(ctx, task)
	if err != nil {
		return api.SubmitReply{}, err
	}
	if created {
		c.cfg.Log.Info("task submitted", "task", task.ID, "sessions", task.NumSamples, "harness", task.Agent.Harness)
		c.work.send()
		c.changed.send()
	}
	return api.SubmitReply{Task: task.ID, Status: api.TaskRunning, Warnings: warnings}, nil
}

// maxWarnings bounds how many unknown fields are let through.
const maxWarnings = 100

// decodeTask reads a task. Where unknown fields are only warned of, it takes
// them out one by one.
func (c *Coordinator) decodeTask(body []byte) (polar.Task, []string, error) {
	var warnings []string
	for {
		task, err := polar.DecodeTask(body)
		var field *polar.FieldError
		if err == nil || c.cfg.UnknownFields != "warn" || len(warnings) == maxWarnings ||
			!errors.As(err, &field) || field.Message != "unknown field" {
			return task, warnings, err
		}
		without, ok := dropField(body, field.Field)
		if !ok {
			return polar.Task{}, nil, err
		}
		body = without
		warnings = append(warnings, field.Error()+", ignored")
	}
}

// dropField removes the field at a path such as a.b[2].c from data.
func dropField(data []byte, path string) ([]byte, bool) {
	switch rawjson.Kind(data) {
	case "an object":
		o, err := rawjson.ParseObject(data)
		if err != nil {
			return nil, false
		}
		for i, m := range o {
			rest, ok := strings.CutPrefix(path, m.Key)
			if !ok {
				continue
			}
			if rest == "" {
				o.Delete(m.Key)
				return o.Append(nil), true
			}
			if rest[0] != '.' && rest[0] != '[' {
				continue
			}
			if value, ok := dropField(m.Value, strings.TrimPrefix(rest, ".")); ok {
				o[i].Value = value
				return o.Append(nil), true
			}
		}
	case "an array":
		list, err := rawjson.ParseArray(data)
		if err != nil {
			return nil, false
		}
		var i int
		if _, err := fmt.Sscanf(path, "[%d]", &i); err != nil || i < 0 || i >= len(list) {
			return nil, false
		}
		_, rest, _ := strings.Cut(path, "]")
		value, ok := dropField(list[i], strings.TrimPrefix(rest, "."))
		if !ok {
			return nil, false
		}
		list[i] = value
		out := []byte{'['}
		for i, v := range list {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, v...)
		}
		return append(out, ']'), true
	}
	return nil, false
}

// checkHeaders refuses headers that could never be sent, which would otherwise
// be found out only when the results are there.
func checkHeaders(to *polar.Callback) error {
	if to == nil {
		return nil
	}
	for name, value := range to.Headers {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
		}) {
			return polar.Invalid("callback.headers", "%q is not the name of a header", name)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return polar.Invalid("callback.headers."+name, "has a control character")
		}
	}
	return nil
}
