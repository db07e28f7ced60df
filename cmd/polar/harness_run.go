package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"polar"
	"polar/harness"
	"polar/kit"
	"polar/sandbox"
	"polar/sandbox/local"
)

// harnessRun is a harness started by hand.
type harnessRun struct {
	gateway     byHand
	kits        string
	agent       polar.Agent
	settings    string
	instruction string
	workdir     string
	session     string
	keep        string
	out, notes  io.Writer
}

func harnessRunCommand() *cobra.Command {
	var r harnessRun
	cmd := &cobra.Command{
		Use:   "run NAME -- INSTRUCTION",
		Short: "Start a harness by hand against a running gateway, with its session recorded",
		Long: `Start a harness by hand in this folder against a running gateway, with its session
recorded: for trying out and debugging. It runs just as in a rollout, with a
HOME of its own and nothing of your environment but the PATH; what it prints
goes to standard output. Afterwards its calls and the traces a trainer would get
are shown. It exits 1 if the harness did not do its work.`,
		Example: `  polar harness run codex -- "fix the failing test"
  polar harness run pi --settings '{"api_type": "anthropic-messages"}' --keep ./logs -- "write a haiku to haiku.txt"`,
		Args: arguments(2, 2, "a harness and an instruction"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.agent.Harness, r.instruction = args[0], args[1]
			r.out, r.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.gateway.url, "gateway-url", "http://127.0.0.1:8100", "address of the gateway")
	f.StringVar(&r.gateway.token, "token", "", "control token (default: the environment variable POLAR_CONTROL_TOKEN)")
	f.StringVar(&r.kits, "harness-dir", defaultHarnessDir(), "where polar harness install puts CLIs")
	f.StringVar(&r.agent.ModelName, "model", "", "model to ask for (default: what the gateway serves)")
	f.StringVar(&r.settings, "settings", "", "agent.settings as JSON")
	f.StringVar(&r.workdir, "workdir", "", "folder to work in (default: this one)")
	f.StringVar(&r.session, "session", "", "name of the session (default: one is made up)")
	f.StringVar(&r.keep, "keep", "", "keep the logs of the harness, in DIR")
	return cmd
}

func (r *harnessRun) run(ctx context.Context) (err error) {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the polar binary: %w", err)
	}
	if r.settings != "" {
		r.agent.Settings = json.RawMessage(r.settings)
	}
	preset, err := builtin(binary, kit.Folder{Dir: r.kits}.Find).harnesses.Open(polar.Spec{Kind: r.agent.Harness, Config: r.agent.Settings})
	if err != nil {
		return badHarness(err)
	}
	job := harness.Job{Instruction: r.instruction, Agent: r.agent}
	dry, err := preset(job) // what it refuses, it refuses before anything is started
	if err != nil {
		return usagef("%w", err)
	}
	sb, err := r.sandbox(ctx, dry.Mounts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(ctx, sb)) }()
	if err := r.gateway.open(ctx, r.session, &job); err != nil {
		return err
	}
	job.Task, job.Paths = polar.TaskID(job.Session), sb.Paths()
	plan, err := preset(job)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.notes, "session %s at %s\n", job.Session, r.gateway.url)
	work := harness.Work{
		Sandbox: sb, Job: job, Plan: plan, MaxLogBytes: 256 << 20, Stdout: r.out, Stderr: r.notes,
		Save: func(out *sandbox.Output, path string) {
			if err := out.Save(context.WithoutCancel(ctx), sb, path); err != nil {
				fmt.Fprintln(r.notes, "polar:", err)
			}
		},
	}
	began := time.Now()
	failure, err := carryOut(ctx, work, r.notes)
	if err != nil {
		return err
	}
	return r.report(context.WithoutCancel(ctx), job, failure, time.Since(began))
}

// badHarness says what is wrong with a harness or its settings.
func badHarness(err error) error {
	if _, missing := errors.AsType[*harness.NotInstalledError](err); missing || errors.Is(err, polar.ErrUnknownKind) {
		return usagef("%w", err)
	}
	return usagef("--settings: %w", err)
}

// carryOut sets a harness up and runs it; the failure is the harness's own.
func carryOut(ctx context.Context, work harness.Work, notes io.Writer) (failure *polar.Failure, err error) {
	used, err := work.SetUp(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(notes, "running %s %s\n", used.Name, used.Version)
	if used.Warning != "" {
		fmt.Fprintln(notes, "warning:", used.Warning)
	}
	_, err = work.Run(ctx)
	if err != nil && !errors.As(err, &failure) {
		return nil, err
	}
	return failure, work.KeepRecords(ctx)
}

// sandbox is one on this machine that works in a folder of the user's.
func (r *harnessRun) sandbox(ctx context.Context, mounts []sandbox.Mount) (sandbox.Sandbox, error) {
	work, err := filepath.Abs(r.workdir)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(work); err != nil || !info.IsDir() {
		return nil, usagef("--workdir %s is not a folder", r.workdir)
	}
	dir, err := os.MkdirTemp("", "polar-harness-")
	if err != nil {
		return nil, err
	}
	driver, err := local.New(local.Config{Dir: filepath.Join(dir, "sandboxes"), Path: os.Getenv("PATH"), AllowedHostPaths: []string{work}})
	if err == nil {
		var sb sandbox.Sandbox
		if sb, err = driver.Start(ctx, sandbox.Spec{ID: "by-hand", Workdir: work, Mounts: mounts}); err == nil {
			return temporary{Sandbox: sb, dir: dir}, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// temporary is a sandbox whose driver's folder goes with it.
type temporary struct {
	sandbox.Sandbox
	dir string
}

func (t temporary) Close(ctx context.Context) error {
	return errors.Join(t.Sandbox.Close(ctx), os.RemoveAll(t.dir))
}

func (r *harnessRun) close(ctx context.Context, sb sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var errs []error
	if r.keep != "" {
		if err := os.CopyFS(r.keep, os.DirFS(sb.Paths().Session)); err != nil {
			errs = append(errs, fmt.Errorf("keep logs: %w", err))
		} else {
			fmt.Fprintf(r.notes, "logs are kept in %s\n", r.keep)
		}
	}
	return errors.Join(append(errs, r.gateway.end(ctx), sb.Close(ctx))...)
}

// report shows what was recorded.
func (r *harnessRun) report(ctx context.Context, job harness.Job, failure *polar.Failure, took time.Duration) error {
	s := stored{Session: job.Session, Attempt: 1}
	var page struct {
		Completions []polar.Call `json:"completions"`
	}
	if err := r.gateway.do(ctx, http.MethodGet, "/sessions/"+string(job.Session)+"/completions", nil, &page); err != nil {
		return err
	}
	s.Calls = page.Completions
	result := polar.Result{Status: polar.Completed, Attempt: 1, Node: r.gateway.url, Failure: failure}
	result.Timing.E2E = float64(took) / float64(time.Millisecond)
	if failure != nil {
		result.Status = polar.Errored
	}
	if len(s.Calls) > 0 {
		if err := r.gateway.do(ctx, http.MethodGet, "/sessions/"+string(job.Session)+"/trajectory?strategy=prefix_merging", nil, &result.Trajectory); err != nil {
			return err
		}
	}
	s.Result = &result
	fmt.Fprintln(r.notes)
	newPainter(r.notes).session(s)
	if failure != nil {
		return errQuiet
	}
	return nil
}

// byHand is a gateway as somebody reaches it who starts a harness by hand.
type byHand struct {
	url, token string
	session    polar.SessionID // the one that is open
}

// open opens a recording session and tells the job where it is.
func (g *byHand) open(ctx context.Context, name string, job *harness.Job) error {
	g.url = strings.TrimSuffix(g.url, "/")
	fromEnv(&g.token, "POLAR_CONTROL_TOKEN")
	if name != "" && !polar.ValidID(name) {
		return usagef("--session %q may have letters, digits, '_', '.' and '-' only", name)
	}
	var opened struct {
		Session polar.SessionID `json:"session_id"`
		Key     string          `json:"api_key"`
		Window  int             `json:"context_window"`
	}
	if err := g.do(ctx, http.MethodPost, "/sessions", map[string]string{"session_id": name}, &opened); err != nil {
		return err
	}
	g.session = opened.Session
	job.Session, job.Key, job.BaseURL, job.ContextWindow = opened.Session, opened.Key, g.url, opened.Window
	var served struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	of := byHand{url: g.url, token: opened.Key}
	if err := of.do(ctx, http.MethodGet, "/v1/models", nil, &served); err == nil && len(served.Data) > 0 {
		job.Model = served.Data[0].ID
	}
	return nil
}

func (g *byHand) end(ctx context.Context) error {
	if g.session == "" {
		return nil
	}
	return g.do(ctx, http.MethodDelete, "/sessions/"+string(g.session), nil, nil)
}

// do makes a control request. Errors say what the gateway said.
func (g *byHand) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, g.url+path, body)
	if err != nil {
		return usagef("--gateway-url: %w", err)
	}
	if g.token != "" {
		req.Header.Set("Authorization", "Bearer "+g.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("no gateway at %s: %w; start one with polar serve", g.url, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, oneLine(string(data), 300))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}
