package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"polar"
	"polar/api"
)

// remote is how a command reaches the rollout server.
type remote struct {
	url   string
	token string
}

func (r *remote) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.url, "rollout-url", "http://127.0.0.1:8080", "address of the rollout server")
	cmd.Flags().StringVar(&r.token, "token", "", "control token (default: the environment variable POLAR_CONTROL_TOKEN)")
}

func (r *remote) client() *api.Client {
	token := r.token
	fromEnv(&token, "POLAR_CONTROL_TOKEN")
	return &api.Client{URL: r.url, Token: token}
}

func submitCommand() *cobra.Command {
	var (
		server         remote
		noWait, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "submit TASK.json|yaml…",
		Short: "Submit tasks, wait for them and print what came of them",
		Example: `  polar submit examples/hello.yaml
  polar submit examples/demo/*.yaml --no-wait`,
		Args: arguments(1, -1, "one or more task files"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tasks, err := readTasks(args)
			if err != nil {
				return err
			}
			client := server.client()
			ids, err := submitAll(cmd.Context(), client, tasks, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if noWait {
				return printSubmitted(cmd.OutOrStdout(), ids, asJSON)
			}
			states, err := waitForTasks(cmd.Context(), client, ids, newProgress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return printOutcome(cmd.OutOrStdout(), states, asJSON)
		},
	}
	server.flags(cmd)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the tasks to end")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// taskFile is a task as it was read from a file.
type taskFile struct {
	path string
	body []byte
}

// readTasks reads and checks all files before the first is submitted.
func readTasks(paths []string) ([]taskFile, error) {
	var out []taskFile
	seen := map[polar.TaskID]string{}
	for _, path := range paths {
		body, err := readTaskFile(path)
		if err != nil {
			return nil, err
		}
		task, err := polar.DecodeTask(body)
		if err != nil {
			return nil, usagef("%s: %w", path, err)
		}
		if other, ok := seen[task.ID]; ok {
			return nil, usagef("%s: task_id: %q is in %s too", path, task.ID, other)
		}
		seen[task.ID] = path
		out = append(out, taskFile{path: path, body: body})
	}
	return out, nil
}

func submitAll(ctx context.Context, client *api.Client, tasks []taskFile, notes io.Writer) ([]polar.TaskID, error) {
	var ids []polar.TaskID
	for _, t := range tasks {
		reply, err := submitOne(ctx, client, t.body)
		if status, ok := errors.AsType[*api.StatusError](err); ok && status.Code < 500 {
			return nil, usagef("%s: %w", t.path, err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.path, err)
		}
		for _, w := range reply.Warnings {
			fmt.Fprintf(notes, "polar: %s: %s\n", t.path, w)
		}
		ids = append(ids, reply.Task)
	}
	return ids, nil
}

// serverGrace is how long a server that does not answer yet is waited for: it
// may have been started in the same breath.
const serverGrace = 3 * time.Second

func submitOne(ctx context.Context, client *api.Client, body []byte) (api.SubmitReply, error) {
	grace := time.NewTimer(serverGrace)
	defer grace.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		reply, err := client.Submit(ctx, body)
		if _, answered := errors.AsType[*api.StatusError](err); err == nil || answered {
			return reply, err
		}
		select {
		case <-ctx.Done():
			return reply, err
		case <-grace.C:
			return reply, err
		case <-tick.C:
		}
	}
}

func printSubmitted(w io.Writer, ids []polar.TaskID, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]any{"submitted": ids})
	}
	for _, id := range ids {
		fmt.Fprintf(w, "submitted %s\n", id)
	}
	return nil
}

// taskState is a task with the summaries of the sessions that have ended.
type taskState struct {
	api.TaskStatus
	summaries []polar.Summary
}

func (t taskState) ended() bool {
	return t.Status == api.TaskCompleted || t.Status == api.TaskFailed || t.Status == api.TaskCancelled
}

// waitForTasks polls until every task has ended. A server that is restarted
// meanwhile is waited for.
func waitForTasks(ctx context.Context, client *api.Client, ids []polar.TaskID, show *progress) ([]taskState, error) {
	defer show.end()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	states := make([]taskState, len(ids))
	for {
		done, total, left := 0, 0, 0
		for i, id := range ids {
			if !states[i].ended() {
				status, err := client.Task(ctx, id, "none")
				if _, refused := errors.AsType[*api.StatusError](err); refused || ctx.Err() != nil {
					return nil, err
				}
				if err != nil { // the server may be on its way back
					show.note(err.Error())
					left++
					continue
				}
				states[i].TaskStatus = status
			}
			done += states[i].Completed
			total += states[i].Total
			if !states[i].ended() {
				left++
			}
		}
		show.update(done, total)
		if left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("stopped waiting; the tasks go on: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
	for i, id := range ids {
		status, err := client.Task(ctx, id, "summary")
		if err != nil {
			return nil, err
		}
		states[i].TaskStatus = status
		for _, raw := range status.Results {
			var s polar.Summary
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, fmt.Errorf("read summary of task %s: %w", id, err)
			}
			states[i].summaries = append(states[i].summaries, s)
		}
	}
	return states, nil
}

// printOutcome prints the table; it fails unless every task completed.
func printOutcome(w io.Writer, states []taskState, asJSON bool) error {
	var all []polar.Summary
	failed := false
	for _, t := range states {
		all = append(all, t.summaries...)
		failed = failed || t.Status != api.TaskCompleted
	}
	if asJSON {
		var out []api.TaskStatus
		for _, t := range states {
			out = append(out, t.TaskStatus)
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			return err
		}
	} else {
		p := newPainter(w)
		p.table(summaryRows(all))
		for _, s := range all {
			if s.Failure != nil {
				p.printf("%s: %s (%s, %s): %s\n", s.Session, s.Status, s.Failure.Blame, s.Failure.Kind, oneLine(s.Failure.Message, 200))
			}
		}
	}
	if failed {
		for _, t := range states {
			if t.Status != api.TaskCompleted {
				fmt.Fprintf(os.Stderr, "polar: task %s is %s\n", t.Task, t.Status)
			}
		}
		return errQuiet
	}
	return nil
}

// progress shows how far waiting has come: a line that is rewritten on a
// terminal, a line per change elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	start    time.Time
	last     string
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, start: time.Now()}
	if f, ok := w.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

func (p *progress) update(done, total int) {
	p.note(fmt.Sprintf("%d of %d sessions done", done, total))
}

func (p *progress) note(line string) {
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s, %s", line, time.Since(p.start).Round(time.Second))
	case line != p.last:
		fmt.Fprintln(p.w, line)
	}
	p.last = line
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
