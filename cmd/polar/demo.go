package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"polar"
	"polar/api"
	"polar/examples"
	"polar/sim"
)

// demoOptions are the flags of polar demo.
type demoOptions struct {
	keep         string
	samples      int
	successRate  float64
	noncanonical float64
	workers      int
	harness      string
	harnessDir   string
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "From nothing to printed traces on this machine",
		Long: `Start a simulated inference server, the rollout server and a gateway node on free
ports, run six small tasks four times each, and print what a trainer would get.
The harness is pi, a real CLI, which is installed if it is not there and npm can
get it; otherwise it is mini, the built-in agent. Nothing else is left behind.`,
		Example: `  polar demo
  polar demo --harness codex
  polar demo --harness mini --keep ./demo-data --success-rate 1`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.harness, "harness", "", "which harness runs (default: pi if it can be had, else mini)")
	f.StringVar(&o.harnessDir, "harness-dir", defaultHarnessDir(), "where polar harness install puts CLIs")
	f.StringVar(&o.keep, "keep", "", "keep the data folder, in DIR (default: a temporary one)")
	f.IntVar(&o.samples, "samples", 4, "how often each task is run")
	f.Float64Var(&o.successRate, "success-rate", 0.7, "share of the tasks that the simulated agent solves")
	f.Float64Var(&o.noncanonical, "noncanonical", 0, "share of tokens that the simulated engine samples other than its tokenizer would write them")
	f.IntVar(&o.workers, "run-workers", 8, "harnesses that run at once")
	return cmd
}

func (o *demoOptions) run(ctx context.Context, out, notes io.Writer) (err error) {
	if o.samples < 1 || o.workers < 1 {
		return usagef("--samples and --run-workers must be 1 or more")
	}
	ran, err := o.chooseHarness(ctx, notes)
	if err != nil {
		return err
	}
	began := time.Now()
	dir := o.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "polar-demo-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	tasks, err := o.tasks()
	if err != nil {
		return err
	}
	simConfig := sim.Defaults()
	simConfig.SuccessRate, simConfig.Noncanonical = o.successRate, o.noncanonical
	engine, err := sim.New(simConfig)
	if err != nil {
		return &usageError{err: err}
	}
	engineListener, err := listenOn(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	s, err := o.service(ctx, dir, "http://"+engineListener.Addr().String())
	if err != nil {
		_ = engineListener.Close()
		return err
	}
	fmt.Fprintf(out, "simulated inference server  http://%s\nrollout server              %s\ngateway                     %s\n",
		engineListener.Addr(), s.rolloutURL(), s.gatewayURL())
	fmt.Fprintf(out, "harness                     %s, in local sandboxes\n\n", ran)
	running, stop := context.WithCancel(ctx)
	all, running := errgroup.WithContext(running)
	all.Go(func() error { return serveHTTP(running, engineListener, engine) })
	all.Go(func() error { return s.Run(running) })
	all.Go(func() error {
		defer stop()
		client := &api.Client{URL: s.rolloutURL()}
		ids, err := submitAll(running, client, tasks, notes)
		if err != nil {
			return err
		}
		states, err := waitForTasks(running, client, ids, newProgress(notes))
		if err != nil {
			return err
		}
		return o.report(running, client, states, out, time.Since(began))
	})
	err = all.Wait()
	if err == nil && o.keep != "" {
		fmt.Fprintf(out, "\nthe data folder is kept: polar serve --data-dir %s, then polar show SESSION\n", o.keep)
	}
	return err
}

// tasks are the example tasks, each as often as asked.
func (o *demoOptions) tasks() ([]taskFile, error) {
	files, err := examples.Demo()
	if err != nil {
		return nil, err
	}
	var out []taskFile
	for _, path := range slices.Sorted(maps.Keys(files)) {
		body, err := taskJSON(path, files[path])
		if err != nil {
			return nil, err
		}
		task, err := polar.DecodeTask(body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		task.NumSamples, task.Agent = o.samples, polar.Agent{Harness: o.harness}
		if body, err = json.Marshal(task); err != nil {
			return nil, err
		}
		out = append(out, taskFile{path: path, body: body})
	}
	return out, nil
}

func (o *demoOptions) service(ctx context.Context, dir, engineURL string) (*service, error) {
	t := defaultTopology()
	t.DataDir, t.Gateway.HarnessDir = dir, o.harnessDir
	n := defaultNode()
	n.ID = "demo"
	n.Inference.BaseURL = engineURL
	n.Inference.Probe = "off" // the engine starts together with us
	n.MaxRun, n.MaxInit, n.MaxPostrun = o.workers, o.workers, o.workers
	cfg, err := decide(t, n)
	if err != nil {
		return nil, err
	}
	cfg.listen, cfg.gatewayListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	return openService(ctx, cfg)
}

// report prints what came of the demo: each session, each task's rewards, and
// one trace drawn.
func (o *demoOptions) report(ctx context.Context, client *api.Client, states []taskState, out io.Writer, took time.Duration) error {
	p := newPainter(out)
	var all []polar.Summary
	for _, t := range states {
		all = append(all, t.summaries...)
	}
	p.table(summaryRows(all))
	p.printf("\n")
	var rows [][]string
	for _, t := range states {
		rewards, sum := "", 0.0
		for _, s := range t.summaries {
			rewards += " " + reward(s.Reward)
			if s.Reward != nil {
				sum += *s.Reward
			}
		}
		rows = append(rows, []string{string(t.Task), rewards[1:], fmt.Sprintf("%.2f", sum/float64(len(t.summaries)))})
	}
	p.table([]string{"TASK", "REWARDS", "MEAN"}, rows)
	var calls, traces, tokens, trained int
	for _, s := range all {
		calls += s.Usage.Calls
		traces += s.Traces
		tokens += s.Usage.PromptTokens + s.Usage.CompletionTokens
		trained += s.Trainable
	}
	p.printf("\n%d calls → %d traces, %d tokens served, %d trained on, in %.1f s\n\n", calls, traces, tokens, trained, took.Seconds())
	for _, s := range all {
		if s.Reward == nil || *s.Reward == 0 || s.Traces == 0 {
			continue
		}
		r, _, err := result(ctx, client, s.Session)
		if err != nil {
			return err
		}
		p.printf("session %s: · prompt, █ sampled and trained on, ░ in between\n", s.Session)
		p.trace(r.Trajectory.Traces[0])
		break
	}
	for _, t := range states {
		if t.Status != api.TaskCompleted {
			return fmt.Errorf("task %s is %s", t.Task, t.Status)
		}
	}
	return nil
}
