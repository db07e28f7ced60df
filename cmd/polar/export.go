package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"polar"
	"polar/export"
)

// exportFlags is what polar export was asked for.
type exportFlags struct {
	server            remote
	format, container string
	output, dataDir   string
	minReward         float64
	status, role      []string
	labels            map[string]string
	task              string
	resume, asJSON    bool
}

func exportCommand() *cobra.Command {
	var e exportFlags
	cmd := &cobra.Command{
		Use:   "export --format FORMAT",
		Short: "Write results as training files",
		Long: `Write results as training files.

Results come in the order of their commits, from a server or, with --data-dir,
from a data folder, also while a server is using it. Formats: ` + strings.Join(export.Formats(), ", ") + `.`,
		Example: `  polar export --format slime -o train.jsonl
  polar export --format verl --container parquet --min-reward 0.5 -o out/
  polar export --format sft --role main --status COMPLETED --data-dir ./polar-data -o sft.jsonl.zst
  polar export --format trl -o big.jsonl --resume`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd) },
	}
	e.server.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&e.format, "format", "", "what to write: "+strings.Join(export.Formats(), ", "))
	f.StringVarP(&e.output, "output", "o", "-", "file, folder (the file is named after the format) or - for standard output")
	f.StringVar(&e.container, "container", "", "jsonl, jsonl.zst or parquet (default: by the name of the file, else jsonl)")
	f.StringVar(&e.dataDir, "data-dir", "", "read this data folder, without a server")
	f.Float64Var(&e.minReward, "min-reward", 0, "leave out rows with a lower reward or none")
	f.StringSliceVar(&e.status, "status", nil, "take sessions that ended so: COMPLETED, ERROR, TIMEOUT, CANCELLED (default: all)")
	f.StringSliceVar(&e.role, "role", nil, "take traces of these roles: main, subagent, compaction, auxiliary (default: all)")
	f.StringToStringVar(&e.labels, "label", nil, "take tasks with this label, as key=value")
	f.StringVar(&e.task, "task", "", "take this task alone")
	f.BoolVar(&e.resume, "resume", false, "go on with what an interrupted export left")
	f.BoolVar(&e.asJSON, "json", false, "print the summary as JSON")
	return cmd
}

func (e *exportFlags) run(cmd *cobra.Command) error {
	filter, err := e.filter(cmd.Flags().Changed("min-reward"))
	if err != nil {
		return err
	}
	path, container, err := e.target()
	if err != nil {
		return err
	}
	if err := export.Check(e.format, container); err != nil {
		return usagef("--%w", err)
	}
	if e.dataDir != "" && cmd.Flags().Changed("rollout-url") {
		return usagef("give either --data-dir or --rollout-url")
	}
	source, done, err := e.source(cmd.Context(), filter.Task)
	if err != nil {
		return err
	}
	defer done()
	show := newExportProgress(cmd.ErrOrStderr())
	config := export.Config{
		Source: source, Format: e.format, Container: container, Filter: filter, Resume: e.resume,
		Progress: show.update, Note: show.note,
	}
	sum, err := writeExport(cmd, config, path)
	show.end()
	if field, ok := errors.AsType[*polar.FieldError](err); ok && (field.Field == "resume" || field.Field == "task") {
		return usagef("--%w", err)
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return e.report(cmd, path, sum)
}

// writeExport writes to standard output, a file, or straight to what is there
// and is no file, such as a named pipe.
func writeExport(cmd *cobra.Command, config export.Config, path string) (export.Summary, error) {
	if path == "" {
		return export.ToWriter(cmd.Context(), config, cmd.OutOrStdout())
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return export.ToFile(cmd.Context(), config, path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return export.Summary{}, err
	}
	sum, err := export.ToWriter(cmd.Context(), config, f)
	return sum, errors.Join(err, f.Close())
}

// report says what came of it, on standard output unless the rows are there.
func (e *exportFlags) report(cmd *cobra.Command, path string, sum export.Summary) error {
	w := cmd.OutOrStdout()
	if path == "" {
		w = cmd.ErrOrStderr()
	}
	if e.asJSON {
		return json.NewEncoder(w).Encode(sum)
	}
	fmt.Fprintln(w, summaryLine(sum))
	return nil
}

func summaryLine(sum export.Summary) string {
	line := fmt.Sprintf("%s from %s", plural(sum.Rows, "row"), plural(sum.Results, "result"))
	if sum.File != "" {
		line += " in " + sum.File
	}
	var left []string
	total := 0
	for _, why := range slices.Sorted(maps.Keys(sum.LeftOut)) {
		left = append(left, fmt.Sprintf("%d %s", sum.LeftOut[why], why))
		total += sum.LeftOut[why]
	}
	if total > 0 {
		line += fmt.Sprintf("; %d left out: %s", total, strings.Join(left, ", "))
	}
	return line
}

func (e *exportFlags) filter(withReward bool) (export.Filter, error) {
	f := export.Filter{Labels: e.labels, Task: polar.TaskID(e.task)}
	if withReward {
		f.MinReward = &e.minReward
	}
	if e.task != "" && !polar.ValidID(e.task) {
		return f, usagef("--task: %q is not the id of a task", e.task)
	}
	known := []string{string(polar.Completed), string(polar.Errored), string(polar.TimedOut), string(polar.Cancelled)}
	for _, s := range e.status {
		s = strings.ToUpper(s)
		if !slices.Contains(known, s) {
			return f, usagef("--status: %q is not known; known: %s", s, strings.Join(known, ", "))
		}
		f.Status = append(f.Status, polar.Status(s))
	}
	roles := []string{string(polar.RoleMain), string(polar.RoleSubagent), string(polar.RoleCompaction), string(polar.RoleAuxiliary)}
	for _, r := range e.role {
		if !slices.Contains(roles, r) {
			return f, usagef("--role: %q is not known; known: %s", r, strings.Join(roles, ", "))
		}
		f.Role = append(f.Role, polar.Role(r))
	}
	return f, nil
}

// target is the file to write, empty for standard output, and its container.
func (e *exportFlags) target() (path, container string, err error) {
	container = e.container
	if container == "" {
		container = export.JSONL
		for suffix, kind := range map[string]string{".jsonl.zst": export.JSONLZstd, ".parquet": export.Parquet} {
			if strings.HasSuffix(e.output, suffix) {
				container = kind
			}
		}
	}
	if e.output == "-" {
		if container != export.JSONL && term.IsTerminal(int(os.Stdout.Fd())) {
			return "", "", usagef("%s is not for a terminal: name a file with -o", container)
		}
		if e.resume {
			return "", "", usagef("--resume needs a file: name it with -o")
		}
		return "", container, nil
	}
	info, err := os.Stat(e.output)
	folder := err == nil && info.IsDir()
	if folder || strings.HasSuffix(e.output, string(filepath.Separator)) {
		if err := os.MkdirAll(e.output, 0o755); err != nil {
			return "", "", fmt.Errorf("make output folder: %w", err)
		}
		return filepath.Join(e.output, e.format+"."+container), container, nil
	}
	return e.output, container, nil
}

// source is the data folder or the server.
func (e *exportFlags) source(ctx context.Context, task polar.TaskID) (export.Source, func(), error) {
	if e.dataDir == "" {
		return &serverResults{client: e.server.client(), task: task}, func() {}, nil
	}
	s, err := openFolderResults(ctx, e.dataDir, task)
	if err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil
}

// barWidth is that of the bar drawn on a terminal.
const barWidth = 30

// exportProgress draws a bar on a terminal and writes a line each tenth of the
// way elsewhere.
type exportProgress struct {
	*progress
	percent int64
}

func newExportProgress(w io.Writer) *exportProgress {
	return &exportProgress{progress: newProgress(w), percent: -1}
}

func (p *exportProgress) update(at export.Progress) {
	if at.Total == 0 {
		return
	}
	percent := 100 * at.Done / at.Total
	if !p.terminal {
		percent -= percent % 10
	}
	if percent == p.percent || percent == 0 && !p.terminal {
		return
	}
	p.percent = percent
	bar := ""
	if p.terminal {
		full := int(percent * barWidth / 100)
		bar = "[" + strings.Repeat("█", full) + strings.Repeat("·", barWidth-full) + "] "
	}
	p.progress.note(fmt.Sprintf("%s%d%%, %s", bar, percent, plural(at.Rows, "row")))
}

// note says something that stays.
func (p *exportProgress) note(line string) {
	if p.terminal {
		line = "\r\x1b[K" + line
	}
	fmt.Fprintln(p.w, line)
}
