package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"polar"
	"polar/api"
	"polar/calllog"
	"polar/llm"
	"polar/rawjson"
)

// shown is all that polar show can know of a session.
type shown struct {
	Session polar.SessionID     `json:"session_id"`
	State   *api.SessionSummary `json:"state,omitempty"`
	Result  *polar.Result       `json:"result,omitempty"`
	Attempt int                 `json:"attempt"`
	Calls   []polar.Call        `json:"calls"`
}

func showCommand() *cobra.Command {
	var (
		server  remote
		asJSON  bool
		dataDir string
		attempt int
	)
	cmd := &cobra.Command{
		Use:   "show SESSION",
		Short: "Show one session: how it ended, its calls, its traces drawn",
		Example: `  polar show hello.0
  polar show hello.0 --attempt 1
  polar show hello.0 --data-dir ./polar-data`,
		Args: arguments(1, 1, "one session id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := polar.SessionID(args[0])
			if !polar.ValidID(args[0]) {
				return usagef("%q is not a session id", args[0])
			}
			if attempt < 0 {
				return usagef("--attempt is %d, must be 1 or more", attempt)
			}
			var s shown
			var err error
			if dataDir != "" {
				s, err = showFromDisk(dataDir, id, attempt)
			} else {
				s, err = showFromServer(cmd.Context(), server.client(), id, attempt)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			}
			newPainter(cmd.OutOrStdout()).session(s)
			return nil
		},
	}
	server.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "read the call log in this data folder, without a server")
	cmd.Flags().IntVar(&attempt, "attempt", 0, "which attempt's calls (default: the newest)")
	return cmd
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

func showFromServer(ctx context.Context, client *api.Client, id polar.SessionID, attempt int) (shown, error) {
	s := shown{Session: id}
	var err error
	if s.Result, s.State, err = result(ctx, client, id); err != nil {
		return s, err
	}
	reply, err := client.Calls(ctx, id, attempt, false)
	if status, ok := errors.AsType[*api.StatusError](err); ok && status.Code == 404 {
		return s, nil // it made no call yet
	}
	if err != nil {
		return s, err
	}
	s.Attempt = reply.Attempt
	for _, c := range reply.Calls {
		s.Calls = append(s.Calls, c.Call)
	}
	return s, nil
}

func showFromDisk(dataDir string, id polar.SessionID, attempt int) (shown, error) {
	s := shown{Session: id, Attempt: attempt}
	dir := filepath.Join(dataDir, "calls")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return s, usagef("%s is no data folder of polar: it has no calls", dataDir)
	}
	attempts, err := calllog.Attempts(dir, id)
	if err != nil {
		return s, err
	}
	if len(attempts) == 0 {
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

func (p painter) session(s shown) {
	p.printf("%s", p.paint(bold, string(s.Session)))
	switch r := s.Result; {
	case r != nil:
		code := green
		if r.Status != polar.Completed {
			code = red
		}
		p.printf("  %s, attempt %d on %s, %s, reward %s\n", p.paint(code, string(r.Status)), r.Attempt, r.Node,
			time.Duration(r.Timing.E2E*float64(time.Millisecond)).Round(time.Millisecond), reward(r.Trajectory.Reward()))
		if f := r.Failure; f != nil {
			p.printf("failed in %s, blame %s, kind %s: %s\n", f.Stage, f.Blame, f.Kind, oneLine(f.Message, 500))
		}
		for _, a := range r.Artifacts {
			p.printf("kept %s (%d bytes)\n", a.Path, a.Size)
		}
	case s.State != nil:
		p.printf("  %s, attempt %d %s\n", s.State.Status, s.State.Attempt, s.State.Node)
	default:
		p.printf("\n")
	}
	if len(s.Calls) > 0 {
		p.printf("\ncalls of attempt %d\n", s.Attempt)
		p.table(callRows(s.Calls))
	}
	if s.Result == nil {
		return
	}
	for _, t := range s.Result.Trajectory.Traces {
		p.printf("\n")
		p.trace(t)
	}
}

func callRows(calls []polar.Call) (head []string, rows [][]string) {
	head = []string{"CALL", "WIRE", "PROMPT", "SAMPLED", "FINISH", "TTFT", "TIME", "ANSWER"}
	for _, c := range calls {
		finish := c.Finish
		switch {
		case c.Error != nil:
			finish = fmt.Sprintf("%s %d", c.Error.Kind, c.Error.Status)
		case !c.Delivered:
			finish += " (abandoned)"
		}
		ttft := "–"
		if !c.FirstToken.IsZero() {
			ttft = c.FirstToken.Sub(c.Start).Round(time.Millisecond).String()
		}
		rows = append(rows, []string{
			string(c.ID), c.Wire, strconv.Itoa(c.Usage.PromptTokens), strconv.Itoa(c.Usage.CompletionTokens),
			finish, ttft, c.End.Sub(c.Start).Round(time.Millisecond).String(), callAnswer(c),
		})
	}
	return head, rows
}

// callAnswer is the beginning of what a call was answered with.
func callAnswer(c polar.Call) string {
	if c.Error != nil {
		return oneLine(c.Error.Message, 60)
	}
	m, err := llm.ParseMessage(c.Reply)
	if err != nil {
		return ""
	}
	text := m.Text()
	for _, t := range m.ToolCalls {
		text += " → " + t.Name + t.Arguments
	}
	if c.Untrainable != "" {
		text = "(not trainable: " + c.Untrainable + ") " + text
	}
	return oneLine(text, 60)
}
