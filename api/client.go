package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"polar"
)

// Client talks to a rollout server. It may be used by many goroutines.
type Client struct {
	// URL is the server's root, such as http://127.0.0.1:8080.
	URL string
	// Token is the control token; empty sends none.
	Token string
	// HTTP makes the requests; nil means http.DefaultClient.
	HTTP *http.Client
}

// StatusError is an answer of the server that is an error.
type StatusError struct {
	Code   int
	Detail string
	// Field is the path of the field that was wrong, if one was.
	Field string
}

func (e *StatusError) Error() string { return e.Detail }

// Unwrap lets errors.Is tell ErrNotFound, ErrConflict and ErrNoSpace apart.
func (e *StatusError) Unwrap() error {
	switch e.Code {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict:
		return ErrConflict
	case http.StatusInsufficientStorage:
		return ErrNoSpace
	}
	return nil
}

// The results that Client.Task can ask for.
const (
	ResultsNone    = "none"
	ResultsSummary = "summary"
	ResultsFull    = "full"
)

// Submit submits a task given as JSON.
func (c *Client) Submit(ctx context.Context, task []byte) (SubmitReply, error) {
	return call[SubmitReply](ctx, c, http.MethodPost, "/rollout/task/submit", task)
}

// Task asks how a task stands, with the results that are asked for.
func (c *Client) Task(ctx context.Context, id polar.TaskID, results string) (TaskStatus, error) {
	return call[TaskStatus](ctx, c, http.MethodGet, "/rollout/task/"+url.PathEscape(string(id))+"?results="+url.QueryEscape(results), nil)
}

// Cancel cancels a task. With registerIfMissing one that the server does not
// know is refused should it come late.
func (c *Client) Cancel(ctx context.Context, id polar.TaskID, registerIfMissing bool) (TaskStatus, error) {
	path := "/rollout/task/" + url.PathEscape(string(id))
	if registerIfMissing {
		path += "?register_if_missing=true"
	}
	return call[TaskStatus](ctx, c, http.MethodDelete, path, nil)
}

// Status asks for the queue and the nodes.
func (c *Client) Status(ctx context.Context) (ServerStatus, error) {
	return call[ServerStatus](ctx, c, http.MethodGet, "/rollout/status", nil)
}

// Health asks whether the server can serve. One that cannot is an answer with
// its reason, not an error.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	resp, err := c.send(ctx, http.MethodGet, "/health", nil, nil)
	if err != nil {
		return h, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return h, statusError(resp)
	}
	return h, c.decode(resp, &h)
}

// Tasks lists tasks, the newest first.
func (c *Client) Tasks(ctx context.Context, f TaskFilter) ([]TaskSummary, error) {
	q := url.Values{}
	if f.Status != "" {
		q.Set("status", f.Status)
	}
	if f.Harness != "" {
		q.Set("harness", f.Harness)
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return call[[]TaskSummary](ctx, c, http.MethodGet, "/tasks?"+q.Encode(), nil)
}

// Sessions lists the sessions of a task.
func (c *Client) Sessions(ctx context.Context, id polar.TaskID) ([]SessionSummary, error) {
	return call[[]SessionSummary](ctx, c, http.MethodGet, "/tasks/"+url.PathEscape(string(id))+"/sessions", nil)
}

// Session returns the whole result of a session as it was stored, or how it
// stands (a SessionSummary) while it has not ended.
func (c *Client) Session(ctx context.Context, id polar.SessionID) (json.RawMessage, error) {
	return call[json.RawMessage](ctx, c, http.MethodGet, "/rollout/session/"+url.PathEscape(string(id)), nil)
}

// Calls returns the recorded calls of an attempt at a session; 0 means the
// newest. The tokens are there if asked for.
func (c *Client) Calls(ctx context.Context, id polar.SessionID, attempt int, tokens bool) (CallsReply, error) {
	q := url.Values{"tokens": {strconv.FormatBool(tokens)}}
	if attempt != 0 {
		q.Set("attempt", strconv.Itoa(attempt))
	}
	return call[CallsReply](ctx, c, http.MethodGet, "/rollout/session/"+url.PathEscape(string(id))+"/calls?"+q.Encode(), nil)
}

// Artifact opens a file that was kept of a session. The caller closes it.
func (c *Client) Artifact(ctx context.Context, id polar.SessionID, path string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, "/rollout/session/"+url.PathEscape(string(id))+"/artifacts/"+(&url.URL{Path: path}).EscapedPath(), nil, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return nil, statusError(resp)
	}
	return resp.Body, nil
}

// Results returns results that the consumer has not acknowledged, waiting for
// the first; limit 0 leaves it to the server.
func (c *Client) Results(ctx context.Context, consumer string, wait time.Duration, limit int) (ResultsPage, error) {
	q := url.Values{"consumer": {consumer}, "wait": {wait.String()}}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return call[ResultsPage](ctx, c, http.MethodGet, "/rollout/results?"+q.Encode(), nil)
}

// Ack acknowledges results up to a cursor: the consumer does not get them again.
func (c *Client) Ack(ctx context.Context, consumer string, cursor int64) error {
	body, err := json.Marshal(AckRequest{Consumer: consumer, Cursor: cursor})
	if err != nil {
		return err
	}
	_, err = call[json.RawMessage](ctx, c, http.MethodPost, "/rollout/results/ack", body)
	return err
}

// call makes a request and reads the JSON of its answer.
func call[T any](ctx context.Context, c *Client, method, path string, body []byte) (v T, err error) {
	resp, err := c.send(ctx, method, path, body, nil)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return v, statusError(resp)
	}
	return v, c.decode(resp, &v)
}

func (c *Client) send(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	root := strings.TrimRight(c.URL, "/")
	req, err := http.NewRequestWithContext(ctx, method, root+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("rollout server %q: %w", c.URL, err)
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no rollout server at %s: start one with polar serve: %w", root, syscall.ECONNREFUSED)
	}
	if short, ok := errors.AsType[*url.Error](err); ok { // the method and the path say nothing to a user
		err = fmt.Errorf("rollout server %s: %w", root, short.Err)
	}
	return resp, err
}

func (c *Client) decode(resp *http.Response, v any) error {
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("rollout server %s: read answer: %w", c.URL, err)
	}
	return nil
}

// statusError reads an error of the server, or of whatever else answered.
func statusError(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body Error
	if json.Unmarshal(raw, &body) != nil || body.Detail == "" {
		body.Detail = fmt.Sprintf("the server answered %s, which is not an answer of a rollout server", resp.Status)
	}
	return &StatusError{Code: resp.StatusCode, Detail: body.Detail, Field: body.Field}
}
