package evaluate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"polar"
	"polar/evaluate"
	"polar/sandbox"
	"polar/sandbox/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) sandbox.Sandbox {
	t.Helper()
	d, err := local.New(local.Config{Dir: filepath.Join(t.TempDir(), "sb"), Path: os.Getenv("PATH"), GraceSeconds: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := d.Start(t.Context(), sandbox.Spec{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return sb
}

func caseFor(sb sandbox.Sandbox) evaluate.Case {
	return evaluate.Case{Sandbox: sb, Env: map[string]string{"LOGS_DIR": sb.Paths().Session + "/logs", "WANT": "42"}}
}

func open(t *testing.T, settings string) evaluate.Evaluator {
	t.Helper()
	e, err := polar.Opener(evaluate.Command)(json.RawMessage(settings))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestSessionCompleted(t *testing.T) {
	t.Parallel()
	e, err := polar.Opener(evaluate.SessionCompleted)(nil)
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[polar.Status]float64{polar.Completed: 1, polar.Errored: 0, polar.TimedOut: 0} {
		v, err := e.Evaluate(t.Context(), evaluate.Case{Trajectory: polar.Trajectory{Status: status}})
		if err != nil || *v.Reward != want {
			t.Errorf("%s: reward %v, error %v", status, *v.Reward, err)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings string
		left     string // what the agent did before
		reward   float64
		detail   string
	}{
		"exit code 0 passes":                    {`{"command":"test $WANT = 42"}`, "", 1, `"exit_code":0`},
		"another exit code fails":               {`{"command":"echo why >&2; exit 3"}`, "", 0, `"exit_code":3,"output_tail":"why\n"`},
		"rewards can be set":                    {`{"command":"false","pass_reward":2,"fail_reward":-1}`, "", -1, `"exit_code":1`},
		"a pipe does not hide a failure":        {`{"command":"false | cat"}`, "", 0, `"exit_code":1`},
		"a number from a file":                  {`{"command":"echo 0.25 >r.txt","reward_file":"r.txt"}`, "", 0.25, ``},
		"whatever the exit code":                {`{"command":"echo 0.25 >$POLAR_REWARD_FILE; exit 9","reward_file":"r.txt"}`, "", 0.25, `"exit_code":9`},
		"an object from a file":                 {`{"command":"echo '{\"reward\":0.5,\"components\":{\"a\":1}}' >r","reward_file":"r"}`, "", 0.5, ``},
		"a file that was not written":           {`{"command":"true","reward_file":"r","pass_reward":7}`, "", 0, `was not written`},
		"what the agent wrote does not count":   {`{"command":"true","reward_file":"r"}`, "echo 100 >r", 0, `was not written`},
		"a folder in the file's place":          {`{"command":"echo 1 >r","reward_file":"r"}`, "mkdir -p r/x", 1, ``},
		"a link in the file's place":            {`{"command":"ln -s other r","reward_file":"r"}`, "echo 1 >other", 0, `not a regular file`},
		"not a number":                          {`{"command":"echo fine >r","reward_file":"r"}`, "", 0, `is not a number`},
		"not a finite number":                   {`{"command":"echo NaN >r","reward_file":"r"}`, "", 0, `not a finite number`},
		"an object without a reward":            {`{"command":"echo {} >r","reward_file":"r"}`, "", 0, `has no reward`},
		"a command that takes too long":         {`{"command":"sleep 1000","timeout_seconds":0.2}`, "", 0, `timed out after 200ms`},
		"a folder for the command":              {`{"command":"pwd | grep -q sub$","cwd":"sub"}`, "mkdir sub", 1, ``},
		"a reward too large to be one is a lie": {`{"command":"head -c 2000000 /dev/zero >r","reward_file":"r"}`, "", 0, `at most`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := start(t)
			if c.left != "" {
				if code, err := sb.Exec(t.Context(), sandbox.Cmd{Args: sandbox.Bash(c.left)}); err != nil || code != 0 {
					t.Fatal(code, err)
				}
			}
			v, err := open(t, c.settings).Evaluate(t.Context(), caseFor(sb))
			if err != nil {
				t.Fatal(err)
			}
			if *v.Reward != c.reward {
				t.Errorf("reward %v, want %v", *v.Reward, c.reward)
			}
			if got, _ := json.Marshal(v.Detail); !bytes.Contains(got, []byte(c.detail)) {
				t.Errorf("detail %s, want %s in it", got, c.detail)
			}
		})
	}
}

func TestComponentsComeFromTheFile(t *testing.T) {
	t.Parallel()
	sb := start(t)
	e := open(t, `{"command":"echo '{\"reward\":1,\"components\":{\"style\":0.5}}' >r","reward_file":"r"}`)
	v, err := e.Evaluate(t.Context(), caseFor(sb))
	if err != nil || v.Components["style"] != 0.5 {
		t.Errorf("components %v, error %v", v.Components, err)
	}
}

func TestTheWholeOutputIsLogged(t *testing.T) {
	t.Parallel()
	sb := start(t)
	v, err := open(t, `{"command":"seq 100000"}`).Evaluate(t.Context(), caseFor(sb))
	if err != nil {
		t.Fatal(err)
	}
	if tail, _ := v.Detail["output_tail"].(string); len(tail) != 4096 || !strings.HasSuffix(tail, "\n100000\n") {
		t.Errorf("a tail of %d bytes", len(tail))
	}
	log, err := sandbox.ReadFile(t.Context(), sb, sb.Paths().Session+"/logs/evaluator.log", 1<<20)
	if err != nil || len(log) != 588895 {
		t.Errorf("a log of %d bytes, error %v", len(log), err)
	}
}

func TestACancelledEvaluationIsNoVerdict(t *testing.T) {
	t.Parallel()
	cause := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := open(t, `{"command":"true"}`).Evaluate(ctx, caseFor(start(t))); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
}

func TestBadSettingsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for settings, field := range map[string]string{
		`{}`:                                     "command",
		`{"command":" "}`:                        "command",
		`{"command":"x","timeout_seconds":-1}`:   "timeout_seconds",
		`{"command":"x","reward_file":"a/.."}`:   "reward_file",
		`{"command":"x","timeout":1}`:            "timeout",
		`{"command":"x","timeout_seconds":"1s"}`: "timeout_seconds",
	} {
		_, err := polar.Opener(evaluate.Command)(json.RawMessage(settings))
		var bad *polar.FieldError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: error %v", settings, err)
		}
	}
}
