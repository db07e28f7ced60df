package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"polar"
	"polar/harness"
	"polar/llm"
)

// showOptions is what polar show is asked for.
type showOptions struct {
	from                  archive
	asJSON, tokens, stats bool
	trace                 string
	attempt               int
}

func showCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show SESSION|TASK",
		Short: "Show one session: how it ended, its calls, its traces drawn",
		Example: `  polar show hello.0
  polar show hello.0 --tokens --trace trace-001
  polar show hello --stats
  polar show hello.0 --attempt 1 --data-dir ./polar-data`,
		Args: arguments(1, 1, "one session id, or with --stats a task id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !polar.ValidID(args[0]):
				return usagef("%q is not a session id", args[0])
			case o.attempt < 0:
				return usagef("--attempt is %d, must be 1 or more", o.attempt)
			case o.stats && (o.tokens || o.trace != "" || o.attempt != 0):
				return usagef("--stats is of whole sessions: it goes with no --tokens, --trace or --attempt")
			case o.stats:
				return showStats(cmd, &o.from, args[0], o.asJSON)
			}
			return o.show(cmd, polar.SessionID(args[0]))
		},
	}
	o.from.flags(cmd)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.tokens, "tokens", false, "list the tokens of a trace with mask and logprob")
	cmd.Flags().StringVar(&o.trace, "trace", "", "show this trace only (with --tokens: the first, unless named)")
	cmd.Flags().BoolVar(&o.stats, "stats", false, "print what became of the calls, of a session or all of a task")
	cmd.Flags().IntVar(&o.attempt, "attempt", 0, "which attempt's calls (default: the newest)")
	return cmd
}

func (o *showOptions) show(cmd *cobra.Command, id polar.SessionID) error {
	s, err := o.from.session(cmd.Context(), id, o.attempt, false)
	if err != nil {
		return err
	}
	p := newPainter(cmd.OutOrStdout())
	if !o.tokens && o.trace == "" {
		if o.asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
		}
		p.session(s)
		return nil
	}
	trace, err := s.trace(polar.TraceID(o.trace))
	switch {
	case err != nil:
		return err
	case o.asJSON:
		return json.NewEncoder(cmd.OutOrStdout()).Encode(trace)
	case o.tokens:
		p.tokens(*trace)
	default:
		p.trace(*trace)
	}
	return nil
}

// trace is the trace of that name; the first if none is given.
func (s stored) trace(id polar.TraceID) (*polar.Trace, error) {
	if s.Result == nil || len(s.Result.Trajectory.Traces) == 0 {
		return nil, fmt.Errorf("session %s has no traces", s.Session)
	}
	traces := s.Result.Trajectory.Traces
	for i := range traces {
		if id == "" || traces[i].ID == id {
			return &traces[i], nil
		}
	}
	return nil, fmt.Errorf("session %s has no trace %s; it has %s to %s", s.Session, id, traces[0].ID, traces[len(traces)-1].ID)
}

func (p painter) session(s stored) {
	p.printf("%s", p.paint(bold, string(s.Session)))
	switch r := s.Result; {
	case r != nil:
		code := green
		if r.Status != polar.Completed {
			code = red
		}
		p.printf("  %s, attempt %d on %s, %s, reward %s\n", p.paint(code, string(r.Status)), r.Attempt, r.Node,
			time.Duration(r.Timing.E2E*float64(time.Millisecond)).Round(time.Millisecond), reward(r.Trajectory.Reward()))
		if used := ranBy(r.Trajectory); used != "" {
			p.printf("run by %s\n", used)
		}
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
	if s.Result == nil || len(s.Result.Trajectory.Traces) == 0 {
		return
	}
	p.printf("\n")
	p.forest(s.Result.Trajectory)
	for _, t := range s.Result.Trajectory.Traces {
		p.printf("\n")
		p.trace(t)
	}
}

// ranBy names the harness of a trajectory, and what is doubtful about it.
func ranBy(t polar.Trajectory) string {
	var used harness.Used
	if json.Unmarshal(t.Metadata["harness"], &used) != nil {
		return "" // a session of an earlier polar, or one that never got so far
	}
	text := used.Name
	if used.Version != "" {
		text += " " + used.Version
	}
	if used.Warning != "" {
		text += "; warning: " + used.Warning
	}
	return text
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
