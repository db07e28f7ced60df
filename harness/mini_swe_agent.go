package harness

import (
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"strconv"
	"strings"

	"polar"
)

// MiniSWEAgentConfig is the settings of the mini_swe_agent harness.
type MiniSWEAgentConfig struct {
	CLIConfig
	// CostLimit ends a run that cost more dollars by LiteLLM's price list, which
	// knows no local model; 0 is no limit.
	CostLimit float64 `json:"cost_limit"`
	// StepLimit is the most model calls; 0 is no limit.
	StepLimit int `json:"step_limit"`
	// ModelRetryAttempts is how often a call is tried, 3 unless set. LiteLLM
	// tries each of them up to three times itself.
	ModelRetryAttempts int `json:"model_retry_attempts"`
	// ModelKwargs are added to every model call.
	ModelKwargs map[string]json.RawMessage `json:"model_kwargs"`
	// SamplingSeed is the seed in every model call.
	SamplingSeed *int64 `json:"sampling_seed"`
	// CommandTimeout is the most time for one command of the model's; 0 leaves it
	// to the agent, which has 30 seconds.
	CommandTimeout polar.Seconds `json:"command_timeout_seconds"`
}

// MiniSWEAgent is mini-SWE-agent, which has one tool: bash.
func MiniSWEAgent() CLI {
	return newCLI(Product{
		Name: "mini_swe_agent", Source: SourcePyPI, Package: "mini-swe-agent", Command: "mini-swe-agent",
		Oldest: "2.4.6", Newest: "2.4.6", Wires: []string{"chat"}, AskVersion: []string{"--help"},
	}, planMiniSWEAgent)
}

func planMiniSWEAgent(program string, c MiniSWEAgentConfig, j Job) (Plan, error) {
	if err := refuseExtras("mini_swe_agent", j.Agent); err != nil {
		return Plan{}, err
	}
	if err := c.check(); err != nil {
		return Plan{}, err
	}
	kwargs := maps.Clone(c.ModelKwargs)
	if c.SamplingSeed != nil {
		if _, twice := kwargs["seed"]; twice {
			return Plan{}, polar.Invalid("agent.settings.sampling_seed", "model_kwargs has a seed too")
		}
		if kwargs == nil {
			kwargs = map[string]json.RawMessage{}
		}
		kwargs["seed"] = json.RawMessage(strconv.FormatInt(*c.SamplingSeed, 10))
	}
	trajectory := path.Join(AgentLogDir(j.Paths), "mini_swe_agent.traj.json")
	args := []string{
		"bash", "-c", miniSWEAgentScript, "mini_swe_agent", trajectory, program,
		"--task=" + j.Instruction, "--config", miniSWEAgentDefaults, "--output", trajectory, "--yolo", "--exit-immediately",
		"--model-class", "litellm", "--model", "openai/" + j.modelOrPolar(), "--environment-class", "local",
		"--cost-limit", strconv.FormatFloat(c.CostLimit, 'f', -1, 64),
		"--config", "agent.step_limit=" + strconv.Itoa(c.StepLimit),
	}
	if len(kwargs) > 0 {
		data, err := json.Marshal(kwargs)
		if err != nil {
			return Plan{}, err
		}
		// The agent prints its settings as Rich markup, to which [/ ends a style and
		// is an error where none began.
		args = append(args, "--config", "model.model_kwargs="+strings.ReplaceAll(string(data), "[/", `\u005b/`))
	}
	if c.CommandTimeout > 0 {
		seconds := max(1, int(c.CommandTimeout.Duration().Seconds()))
		args = append(args, "--config", "environment.timeout="+strconv.Itoa(seconds))
	}
	return Plan{
		Env: map[string]string{
			"OPENAI_API_BASE":                      j.BaseURL + "/v1",
			"LITELLM_LOCAL_MODEL_COST_MAP":         "True",
			"MSWEA_CONFIGURED":                     "true",
			"MSWEA_COST_TRACKING":                  "ignore_errors",
			"MSWEA_GLOBAL_CONFIG_DIR":              path.Join(j.Paths.Home, ".config/mini-swe-agent"),
			"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": strconv.Itoa(orElse(c.ModelRetryAttempts, 3)),
			"TYPER_STANDARD_TRACEBACK":             "1",
		},
		Run:   []Step{{Args: args, Log: "mini_swe_agent.log", Errors: "mini_swe_agent.stderr.log"}},
		Judge: judgeMiniSWEAgent,
	}, nil
}

func (c MiniSWEAgentConfig) check() error {
	switch {
	case c.CostLimit < 0:
		return polar.Invalid("agent.settings.cost_limit", "must be 0, for no limit, or more")
	case c.StepLimit < 0:
		return polar.Invalid("agent.settings.step_limit", "must be 0, for no limit, or more")
	case c.ModelRetryAttempts < 0:
		return polar.Invalid("agent.settings.model_retry_attempts", "must be 1 or more")
	case c.CommandTimeout < 0:
		return polar.Invalid("agent.settings.command_timeout_seconds", "must be above 0")
	}
	return nil
}

// miniSWEAgentDefaults is the agent's own configuration. It looks for a name in
// the work folder before it looks among its own files, where ../.. is the
// folder of the package; a task could have a mini.yaml, hardly this.
const miniSWEAgentDefaults = "../../minisweagent/config/mini.yaml"

// miniSWEAgentScript runs the agent and then prints the line of its trajectory,
// which is JSON with an indent of two, that says how it ended: the exit code is
// 0 also when a limit was reached.
const miniSWEAgentScript = `"${@:2}"; code=$?; echo; grep -m 1 '^    "exit_status": ' "$1"; exit "$code"`

// exitStatus is that line.
var exitStatus = regexp.MustCompile(`^    "exit_status": "(\w*)",?$`)

// lastOfTraceback is where an uncaught exception of Python's is named.
var lastOfTraceback = regexp.MustCompile(`^[A-Za-z_][\w.]*(Error|Exception|Timeout|Exceeded): `)

// judgeMiniSWEAgent goes by the trajectory's exit status: Submitted, a limit,
// or the class of an exception, which is on standard error with its message.
func judgeMiniSWEAgent(e Ending) *polar.Failure {
	var status string
	for line := range lines(e.Stdout) {
		status = ""
		if found := exitStatus.FindSubmatch(line); found != nil {
			status = string(found[1])
		}
	}
	switch status {
	case "Submitted":
		return nil
	case "LimitsExceeded", "TimeExceeded", "RepeatedFormatError":
		return failed(polar.BlameAgent, "%s", status)
	}
	var reason string
	for line := range lines(e.Stderr) {
		if lastOfTraceback.Match(line) {
			reason = string(line)
		}
	}
	switch blame := liteLLMBlame(reason); {
	case reason == "" && e.Code == 0:
		return failed(polar.BlameAgent, "nothing of how it ended")
	case reason == "":
		return exited(e)
	default: // LiteLLM has the class in the message again
		return failed(blame, "%s", strings.TrimPrefix(reason, "litellm.exceptions."))
	}
}

// liteLLMBlame says whose fault an exception of LiteLLM's is. The text of some
// holds those of others, so that the class is looked at first.
func liteLLMBlame(reason string) polar.Blame {
	class, _, _ := strings.Cut(reason, ": ")
	switch class[strings.LastIndexByte(class, '.')+1:] {
	case "ContextWindowExceededError", "BadRequestError", "ContentPolicyViolationError", "UnsupportedParamsError":
		return polar.BlameAgent
	}
	return blameFor(reason)
}
