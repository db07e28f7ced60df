package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"polar"
	"polar/api"
	"polar/calllog"
	"polar/llm"
	"polar/rawjson"
	"polar/store"
)

// stored is all that can be known of a session afterwards.
type stored struct {
	Session polar.SessionID     `json:"session_id"`
	State   *api.SessionSummary `json:"state,omitempty"`
	Result  *polar.Result       `json:"result,omitempty"`
	Attempt int                 `json:"attempt"`
	Calls   []polar.Call        `json:"calls"`
	// Task is what was submitted; only a data folder tells.
	Task *polar.Task `json:"-"`
}

// archive is where sessions are looked up: a server, or a data folder.
type archive struct {
	server  remote
	dataDir string
}

func (a *archive) flags(cmd *cobra.Command) {
	a.server.flags(cmd)
	cmd.Flags().StringVar(&a.dataDir, "data-dir", "", "read this data folder, without a server")
}

// session looks a session up, with the calls of an attempt (0 means the
// newest) and their tokens if they are wanted.
func (a *archive) session(ctx context.Context, id polar.SessionID, attempt int, tokens bool) (stored, error) {
	if a.dataDir != "" {
		return sessionOnDisk(ctx, a.dataDir, id, attempt)
	}
	return sessionOnServer(ctx, a.server.client(), id, attempt, tokens)
}

// result looks up the result of a session; nil if it has none yet.
func (a *archive) result(ctx context.Context, id polar.SessionID) (*polar.Result, error) {
	if a.dataDir != "" {
		s := stored{Session: id}
		err := s.fromStore(ctx, a.dataDir)
		return s.Result, err
	}
	r, _, err := result(ctx, a.server.client(), id)
	return r, err
}

// sessions are the ids of a task's sessions, or the id itself if it is that of
// a session.
func (a *archive) sessions(ctx context.Context, id string) ([]polar.SessionID, error) {
	if a.dataDir != "" {
		return sessionsOnDisk(ctx, a.dataDir, id)
	}
	client := a.server.client()
	list, err := client.Sessions(ctx, polar.TaskID(id))
	if errors.Is(err, api.ErrNotFound) {
		if _, err := client.Session(ctx, polar.SessionID(id)); errors.Is(err, api.ErrNotFound) {
			return nil, fmt.Errorf("there is no session and no task %s", id)
		}
		return []polar.SessionID{polar.SessionID(id)}, nil
	}
	out := make([]polar.SessionID, len(list))
	for i, s := range list {
		out[i] = s.ID
	}
	return out, err
}

// result reads the whole result of a session that has ended, or nil and how it
// stands.
func result(ctx context.Context, client *api.Client, id polar.SessionID) (*polar.Result, *api.SessionSummary, error) {
	raw, err := client.Session(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	o, err := rawjson.ParseObject(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("read session %s: %w", id, err)
	}
	if o.Get("trajectory") == nil {
		var state api.SessionSummary
		return nil, &state, json.Unmarshal(raw, &state)
	}
	var r polar.Result
	return &r, nil, json.Unmarshal(raw, &r)
}

func sessionOnServer(ctx context.Context, client *api.Client, id polar.SessionID, attempt int, tokens bool) (stored, error) {
	s := stored{Session: id}
	var err error
	if s.Result, s.State, err = result(ctx, client, id); err != nil {
		return s, err
	}
	reply, err := client.Calls(ctx, id, attempt, tokens)
	if errors.Is(err, api.ErrNotFound) {
		return s, nil // it made no call yet
	}
	if err != nil {
		return s, err
	}
	s.Attempt = reply.Attempt
	for _, c := range reply.Calls {
		s.Calls = append(s.Calls, recorded(c))
	}
	return s, nil
}

// recorded is a call on the wire as it was recorded.
func recorded(c api.Call) polar.Call {
	out := c.Call
	if c.PromptIDs != nil {
		out.Prompt = polar.NewPrompt(nil, 0, c.PromptIDs)
	}
	for i, id := range c.SampledIDs {
		token := llm.Token{ID: id, Logprob: llm.NoLogprob()}
		if i < len(c.Logprobs) {
			token.Logprob = c.Logprobs[i]
		}
		out.Sampled = append(out.Sampled, token)
	}
	return out
}

// sessionOnDisk reads the call log and, where the folder has a database, the
// task and the result.
func sessionOnDisk(ctx context.Context, dataDir string, id polar.SessionID, attempt int) (stored, error) {
	s := stored{Session: id, Attempt: attempt}
	dir := filepath.Join(dataDir, "calls")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return s, usagef("%s is no data folder of polar: it has no calls", dataDir)
	}
	if err := s.fromStore(ctx, dataDir); err != nil {
		return s, err
	}
	attempts, err := calllog.Attempts(dir, id)
	if err != nil {
		return s, err
	}
	if len(attempts) == 0 {
		if s.Result != nil {
			return s, nil
		}
		return s, fmt.Errorf("no calls of session %s in %s", id, dataDir)
	}
	if s.Attempt == 0 {
		s.Attempt = attempts[len(attempts)-1]
	}
	s.Calls, err = calllog.Read(dir, id, s.Attempt)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("session %s has no attempt %d; it has %s", id, s.Attempt, strings.Trim(fmt.Sprint(attempts), "[]"))
	}
	return s, err
}

// taskOf is the task that a session is a sample of.
func taskOf(id string) polar.TaskID {
	if dot := strings.LastIndexByte(id, '.'); dot > 0 {
		return polar.TaskID(id[:dot])
	}
	return polar.TaskID(id)
}

// fromStore adds what the database of a data folder knows of the session.
func (s *stored) fromStore(ctx context.Context, dataDir string) error {
	return eachResult(ctx, dataDir, taskOf(string(s.Session)), func(reader *store.Reader, blobs *store.Blobs, placed api.StoredResult) error {
		if placed.Session != s.Session {
			return nil
		}
		task, err := reader.TaskBody(ctx, placed.Task)
		if err != nil {
			return err
		}
		s.Task, s.Result = &task, nil
		if placed.Blob == "" {
			s.State = &api.SessionSummary{Outcome: &placed.Summary}
			s.State.ID, s.State.Status, s.State.Attempt, s.State.Node = placed.Session, placed.Summary.Status, placed.Summary.Attempt, placed.Summary.Node
			return nil
		}
		raw, err := blobs.Get(placed.Blob)
		if err != nil {
			return err
		}
		s.Result = &polar.Result{}
		if err := json.Unmarshal(raw, s.Result); err != nil {
			return fmt.Errorf("read result of session %s: %w", s.Session, err)
		}
		return nil
	})
}

func sessionsOnDisk(ctx context.Context, dataDir, id string) ([]polar.SessionID, error) {
	var out []polar.SessionID
	for _, task := range []polar.TaskID{polar.TaskID(id), taskOf(id)} {
		err := eachResult(ctx, dataDir, task, func(_ *store.Reader, _ *store.Blobs, placed api.StoredResult) error {
			if string(task) == id || string(placed.Session) == id {
				out = append(out, placed.Session)
			}
			return nil
		})
		if err != nil || len(out) > 0 {
			return out, err
		}
	}
	return nil, fmt.Errorf("%s has no result of a session or task %s", dataDir, id)
}

// resultPage is how many results are read at once.
const resultPage = 100

// eachResult goes through the results of a task in a data folder; one without a
// database has none.
func eachResult(ctx context.Context, dataDir string, task polar.TaskID, visit func(*store.Reader, *store.Blobs, api.StoredResult) error) error {
	reader, err := store.OpenReader(ctx, filepath.Join(dataDir, "polar.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	blobs, err := store.OpenBlobs(filepath.Join(dataDir, "blobs"))
	if err != nil {
		return err
	}
	for after := int64(0); ; {
		page, _, err := reader.ResultsAfter(ctx, after, task, resultPage)
		if err != nil {
			return err
		}
		for _, placed := range page {
			after = placed.Seq
			if err := visit(reader, blobs, placed.StoredResult); err != nil {
				return err
			}
		}
		if len(page) < resultPage {
			return nil
		}
	}
}
