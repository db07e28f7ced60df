package harness

import (
	_ "embed"
	"encoding/json"
	"path"

	"polar"
)

// OpenHandsSDKConfig is the settings of the openhands_sdk harness.
type OpenHandsSDKConfig struct {
	CLIConfig
	// MaxIterations is the most steps of the agent, 8 unless set.
	MaxIterations int `json:"max_iterations"`
	// Temperature and MaxOutputTokens are in every model call if they are set.
	Temperature     *float64 `json:"temperature"`
	MaxOutputTokens int      `json:"max_output_tokens"`
	// ModelKwargs are more fields of the SDK's LLM, such as num_retries.
	ModelKwargs map[string]json.RawMessage `json:"model_kwargs"`
}

// OpenHandsSDK is the agent of the OpenHands SDK with its tools for a terminal,
// for files and for a list of tasks. The SDK is a library: what is run is a
// script of polar's, and the command is a Python that has the library.
func OpenHandsSDK() CLI {
	return newCLI(Product{
		Name: "openhands_sdk", Source: SourcePyPI, Package: "openhands-sdk", Command: "openhands-python",
		Oldest: "1.58.0", Newest: "1.58.0", Wires: []string{"chat"},
		AskVersion: []string{"-c", "import importlib.metadata as m; print(m.version('openhands-sdk'))"},
	}, planOpenHandsSDK)
}

//go:embed openhands_sdk.py
var openHandsScript []byte

// openHandsJob is what the script reads.
type openHandsJob struct {
	Instruction   string                        `json:"instruction"`
	MaxIterations int                           `json:"max_iterations"`
	LLM           map[string]any                `json:"llm"`
	MCP           map[string]openHandsMCPServer `json:"mcp,omitempty"`
	Skills        string                        `json:"skills,omitempty"`
}

type openHandsMCPServer struct {
	Transport string   `json:"transport"`
	Command   string   `json:"command,omitempty"`
	Args      []string `json:"args,omitempty"`
	URL       string   `json:"url,omitempty"`
}

func planOpenHandsSDK(program string, c OpenHandsSDKConfig, j Job) (Plan, error) {
	switch {
	case c.MaxIterations < 0:
		return Plan{}, polar.Invalid("agent.settings.max_iterations", "must be 1 or more")
	case c.MaxOutputTokens < 0:
		return Plan{}, polar.Invalid("agent.settings.max_output_tokens", "must be 1 or more")
	}
	llm, err := c.llm(j)
	if err != nil {
		return Plan{}, err
	}
	servers := map[string]openHandsMCPServer{}
	for _, s := range j.Agent.MCPServers {
		servers[s.Name] = openHandsMCPServer{Transport: s.Transport, Command: s.Command, Args: s.Args, URL: s.URL}
	}
	var skills string
	if j.Agent.SkillsPath != "" {
		skills = path.Join(j.Paths.Home, ".openhands/polar/skills")
	}
	job, err := jsonFile(path.Join(j.Paths.Home, ".openhands/polar/job.json"), openHandsJob{
		Instruction: j.Instruction, MaxIterations: orElse(c.MaxIterations, 8), LLM: llm, MCP: servers, Skills: skills,
	})
	if err != nil {
		return Plan{}, err
	}
	script := File{Path: path.Join(j.Paths.Home, ".openhands/polar/run.py"), Content: openHandsScript, Mode: 0o600}
	return Plan{
		Files: []File{job, script},
		Env: map[string]string{
			"ANONYMIZED_TELEMETRY":         "false",
			"DO_NOT_TRACK":                 "1",
			"LITELLM_LOCAL_MODEL_COST_MAP": "True",
			"OH_PERSISTENCE_DIR":           path.Join(j.Paths.Home, ".openhands"),
			"OPENHANDS_SUPPRESS_BANNER":    "1",
		},
		Setup: copySkills(j.Agent.SkillsPath, skills),
		Run:   []Step{{Args: []string{program, script.Path, job.Path}, Log: "openhands_sdk.jsonl", Errors: "openhands_sdk.stderr.log"}},
		Judge: judgeOpenHandsSDK,
	}, nil
}

// llm is the model as the SDK has it.
func (c OpenHandsSDKConfig) llm(j Job) (map[string]any, error) {
	llm := map[string]any{
		"model": "openai/" + j.modelOrPolar(), "base_url": j.BaseURL + "/v1", "api_key": j.Key, "api_mode": "chat", "usage_id": "agent",
	}
	if c.Temperature != nil {
		llm["temperature"] = *c.Temperature
	}
	if c.MaxOutputTokens > 0 {
		llm["max_output_tokens"] = c.MaxOutputTokens
	}
	for name, value := range c.ModelKwargs {
		if _, taken := llm[name]; taken {
			return nil, polar.Invalid("agent.settings.model_kwargs", "%q is set elsewhere", name)
		}
		llm[name] = value
	}
	return llm, nil
}

// judgeOpenHandsSDK goes by the line that the script prints last.
func judgeOpenHandsSDK(e Ending) *polar.Failure {
	var last struct {
		Outcome *struct {
			Status string `json:"status"`
			Code   string `json:"code"`
			Detail string `json:"detail"`
		} `json:"outcome"`
	}
	for line := range lines(e.Stdout) {
		last.Outcome = nil
		_ = json.Unmarshal(line, &last) // a line that is cut off is no outcome
	}
	switch o := last.Outcome; {
	case o == nil:
		return exited(e)
	case o.Status == "finished":
		return nil
	case o.Code == "":
		return failed(polar.BlameAgent, "the conversation is %s", o.Status)
	default:
		return failed(openHandsBlame(o.Code, o.Detail), "%s: %s", o.Code, o.Detail)
	}
}

// openHandsBlame says whose fault an error of the SDK's is.
func openHandsBlame(code, detail string) polar.Blame {
	switch code {
	case "LLMAuthenticationError", "LLMRateLimitError", "LLMServiceUnavailableError", "LLMTimeoutError", "LLMNoResponseError":
		return polar.BlameService
	case "MaxIterationsReached", "LLMContextWindowExceedError", "LLMContextWindowTooSmallError", "LLMBadRequestError", "LLMMalformedConversationHistoryError":
		return polar.BlameAgent
	case "MissingServer":
		return polar.BlameTask
	}
	return blameFor(detail)
}
