package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"polar"
	"polar/rawjson"
	"polar/sandbox"
)

// CommandConfig is the settings of the command evaluator.
type CommandConfig struct {
	// Command is a line for bash.
	Command string `json:"command"`
	// Cwd is absolute or relative to the work folder, which it is by default.
	Cwd string `json:"cwd"`
	// Timeout is how long the command may take; 0 means 120 s.
	Timeout polar.Seconds `json:"timeout_seconds"`
	// RewardFile, absolute or relative to the work folder, is where the command
	// writes the reward: a number, or an object with "reward" and, if it likes,
	// "components". Its place is also in POLAR_REWARD_FILE. Without one the
	// exit code decides.
	RewardFile string `json:"reward_file"`
	// PassReward (1) is given for exit code 0; FailReward (0) for any other, for
	// a timeout and for a reward file that is missing or cannot be read.
	PassReward *float64 `json:"pass_reward"`
	FailReward *float64 `json:"fail_reward"`
}

const (
	commandTimeout = 120 * time.Second
	maxRewardFile  = 1 << 20
	maxCommandLog  = 64 << 20
	outputTail     = 4 << 10
)

// Command runs a command in the sandbox and takes the reward from its exit code
// or, whatever the exit code, from a file it writes. The file is removed
// before the command runs, so that what the agent left there does not count.
func Command(c CommandConfig) (Evaluator, error) {
	if strings.TrimSpace(c.Command) == "" {
		return nil, polar.Invalid("command", "missing")
	}
	if !(c.Timeout >= 0) || math.IsInf(float64(c.Timeout), 0) {
		return nil, polar.Invalid("timeout_seconds", "must be above 0")
	}
	if c.RewardFile != "" && (strings.HasSuffix(c.RewardFile, "/") || path.Base(c.RewardFile) == "." || path.Base(c.RewardFile) == "..") {
		return nil, polar.Invalid("reward_file", "%q is not the name of a file", c.RewardFile)
	}
	e := command{CommandConfig: c, timeout: c.Timeout.Duration(), pass: 1}
	if c.PassReward != nil {
		e.pass = *c.PassReward
	}
	if c.FailReward != nil {
		e.fail = *c.FailReward
	}
	if e.timeout == 0 {
		e.timeout = commandTimeout
	}
	return e, nil
}

type command struct {
	CommandConfig
	timeout    time.Duration
	pass, fail float64
}

var errTimedOut = errors.New("the evaluator's command timed out")

func (e command) Evaluate(ctx context.Context, c Case) (Verdict, error) {
	env := maps.Clone(c.Env)
	file := e.RewardFile
	if file != "" {
		if !path.IsAbs(file) {
			file = path.Join(c.Sandbox.Paths().Work, file)
		}
		if err := clearFile(ctx, c.Sandbox, file); err != nil {
			return Verdict{}, err
		}
		if env == nil {
			env = map[string]string{}
		}
		env["POLAR_REWARD_FILE"] = file
	}
	out, err := sandbox.NewOutput("", maxCommandLog)
	if err != nil {
		return Verdict{}, err
	}
	defer out.Close() //nolint:errcheck // what counts was saved
	limited, cancel := context.WithTimeoutCause(ctx, e.timeout, errTimedOut)
	defer cancel()
	code, err := c.Sandbox.Exec(limited, sandbox.Cmd{
		Args: sandbox.Bash(e.Command), Dir: e.Cwd, Env: env, Stdout: out, Stderr: out,
	})
	timedOut := errors.Is(err, errTimedOut) && ctx.Err() == nil
	if err != nil && !timedOut {
		return Verdict{}, fmt.Errorf("run the evaluator's command: %w", err)
	}
	if dir := c.Env["LOGS_DIR"]; dir != "" {
		if err := out.Save(ctx, c.Sandbox, path.Join(dir, "evaluator.log")); err != nil {
			return Verdict{}, fmt.Errorf("keep the evaluator's log: %w", err)
		}
	}
	v := Verdict{Reward: &e.fail, Detail: map[string]any{}}
	if tail := strings.ToValidUTF8(out.Tail(outputTail), string(utf8.RuneError)); tail != "" {
		v.Detail["output_tail"] = tail
	}
	if timedOut {
		v.Detail["reason"] = fmt.Sprintf("timed out after %v", e.timeout)
		return v, nil
	}
	v.Detail["exit_code"] = code
	if file == "" {
		if code == 0 {
			v.Reward = &e.pass
		}
		return v, nil
	}
	reward, components, err := readReward(ctx, c.Sandbox, file)
	if ctx.Err() != nil {
		return Verdict{}, context.Cause(ctx)
	}
	if err != nil {
		v.Detail["reason"] = err.Error()
	} else {
		v.Reward, v.Components = &reward, components
	}
	return v, nil
}

// clearFile removes whatever stands where the reward is to be written.
func clearFile(ctx context.Context, sb sandbox.Sandbox, file string) error {
	var out bytes.Buffer
	code, err := sb.Exec(ctx, sandbox.Cmd{Args: []string{"rm", "-rf", "--", file}, Stdout: &out, Stderr: &out})
	if err != nil {
		return fmt.Errorf("clear reward file: %w", err)
	}
	if code != 0 {
		return fmt.Errorf("clear reward file %s: %s", file, strings.TrimSpace(out.String()))
	}
	return nil
}

// readReward takes the reward from the file. An error says why there is none,
// for people.
func readReward(ctx context.Context, sb sandbox.Sandbox, file string) (float64, map[string]float64, error) {
	content, err := sandbox.ReadFile(ctx, sb, file, maxRewardFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, errors.New("the reward file was not written")
	}
	if err != nil {
		return 0, nil, err
	}
	reward, components, err := parseReward(content)
	if err != nil {
		return 0, nil, fmt.Errorf("reward file: %w", err)
	}
	return reward, components, nil
}

func parseReward(content []byte) (float64, map[string]float64, error) {
	text := strings.TrimSpace(string(content))
	if !strings.HasPrefix(text, "{") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, nil, fmt.Errorf("%.40q is not a number", text)
		}
		return f, nil, finite(f)
	}
	if err := rawjson.Valid([]byte(text)); err != nil {
		return 0, nil, err
	}
	var said struct {
		Reward     *float64           `json:"reward"`
		Components map[string]float64 `json:"components"`
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return 0, nil, err
	}
	if said.Reward == nil {
		return 0, nil, errors.New("the object has no reward")
	}
	return *said.Reward, said.Components, finite(*said.Reward)
}

func finite(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("%v is not a finite number", f)
	}
	return nil
}
