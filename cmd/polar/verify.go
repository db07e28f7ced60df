package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"polar"
	"polar/trajectory"
)

// verified sums up what was looked at.
type verified struct {
	Sessions   int                    `json:"sessions"`
	Traces     int                    `json:"traces"`
	Trained    int                    `json:"trained_tokens"`
	Calls      int                    `json:"calls"`
	Rebuilt    int                    `json:"rebuilt"`
	Violations []trajectory.Violation `json:"violations"`
}

func verifyCommand() *cobra.Command {
	var (
		from        archive
		all, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "verify FILE|SESSION…",
		Short: "Prove that stored results are token-faithful, or say where they are not",
		Example: `  polar verify results.jsonl
  polar verify hello.0 --data-dir ./polar-data
  polar verify hello.0 --all --json`,
		Args: arguments(1, -1, "result files or session ids"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v := &verifier{from: from, all: all, builders: builtin("", nil).builders}
			for _, arg := range args {
				if err := v.verify(cmd.Context(), arg); err != nil {
					return err
				}
				if len(v.Violations) > 0 && !all {
					break
				}
			}
			return v.print(cmd.OutOrStdout(), asJSON)
		},
	}
	from.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "list every violation, not only the first")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verifier goes through results until the first violation, or through all.
type verifier struct {
	verified
	from     archive
	all      bool
	builders polar.Registry[trajectory.Builder]
}

// verify takes a file if there is one of that name, else a session.
func (v *verifier) verify(ctx context.Context, arg string) error {
	info, err := os.Stat(arg)
	if err == nil && info.Mode().IsRegular() {
		return v.file(arg)
	}
	if !polar.ValidID(arg) {
		return usagef("%q is neither a file nor a session id", arg)
	}
	s, err := v.from.session(ctx, polar.SessionID(arg), 0, true)
	if err != nil {
		return err
	}
	if s.Result == nil {
		return fmt.Errorf("session %s has no result with traces to verify", arg)
	}
	if s.Attempt != s.Result.Attempt {
		if s, err = v.from.session(ctx, s.Session, s.Result.Attempt, true); err != nil {
			return err
		}
	}
	return v.session(s)
}

// session proves a result against its recorded calls and, where the task is
// known, builds it again.
func (v *verifier) session(s stored) error {
	calls := s.Calls
	if calls == nil {
		calls = []polar.Call{}
	}
	v.Calls += len(calls)
	v.note(*s.Result, trajectory.Violations(*s.Result, calls))
	if s.Task == nil || len(v.Violations) > 0 && !v.all {
		return nil
	}
	build, err := v.builders.Open(polar.Spec{Kind: s.Task.Builder.Strategy, Config: s.Task.Builder.Config})
	if err != nil {
		return fmt.Errorf("session %s: builder %s: %w", s.Session, s.Task.Builder.Strategy, err)
	}
	if len(calls) == 0 {
		return nil // there was nothing to build
	}
	v.Rebuilt++
	err = trajectory.Rebuild(*s.Result, build, trajectory.Record{Instruction: s.Task.Instruction, Calls: calls})
	if violation, ok := errors.AsType[*trajectory.Violation](err); ok {
		v.Violations = append(v.Violations, *violation)
	}
	return nil
}

// note counts a result and takes its violations down.
func (v *verifier) note(r polar.Result, violations iter.Seq[trajectory.Violation]) {
	v.Sessions++
	v.Traces += len(r.Trajectory.Traces)
	v.Trained += r.Summary().Trainable
	for violation := range violations {
		v.Violations = append(v.Violations, violation)
		if !v.all {
			return
		}
	}
}

// file proves the results of a file, one after the other.
func (v *verifier) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open results: %w", err)
	}
	defer func() { _ = f.Close() }()
	var lines io.Reader = f
	if strings.HasSuffix(path, ".zst") {
		unpacked, err := zstd.NewReader(f)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		defer unpacked.Close()
		lines = unpacked
	}
	dec := json.NewDecoder(lines)
	for n := 1; ; n++ {
		var r polar.Result
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) && n > 1 {
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%s: there is no result in it", path)
		case err != nil:
			return fmt.Errorf("%s: result %d: %w", path, n, err)
		case r.Session == "":
			return fmt.Errorf("%s: result %d has no session_id: is it written by polar export --format polar?", path, n)
		}
		v.note(r, trajectory.Violations(r, nil))
		if len(v.Violations) > 0 && !v.all {
			return nil
		}
	}
}

// print says what was proven; a violation fails the command.
func (v *verifier) print(w io.Writer, asJSON bool) error {
	if asJSON {
		if v.Violations == nil {
			v.Violations = []trajectory.Violation{}
		}
		if err := json.NewEncoder(w).Encode(v.verified); err != nil {
			return err
		}
		if len(v.Violations) > 0 {
			return errQuiet
		}
		return nil
	}
	if len(v.Violations) > 0 && !v.all {
		return &v.Violations[0]
	}
	for _, violation := range v.Violations {
		fmt.Fprintln(w, violation.Error())
	}
	if n := len(v.Violations); n > 0 {
		return fmt.Errorf("%s in %s", plural(n, "violation"), plural(v.Sessions, "session"))
	}
	how := "as far as results alone show it"
	if v.Calls > 0 {
		how = fmt.Sprintf("against %s as recorded", plural(v.Calls, "call"))
	}
	if v.Rebuilt > 0 {
		how += ", and built again byte for byte"
	}
	fmt.Fprintf(w, "%s, %s, %s: every invariant holds, %s\n",
		plural(v.Sessions, "session"), plural(v.Traces, "trace"), plural(v.Trained, "trained token"), how)
	return nil
}
