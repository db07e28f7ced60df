package harness

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"polar"
)

// PiConfig is the settings of the pi harness.
type PiConfig struct {
	CLIConfig
	// APIType is the wire: openai-completions (the default), openai-responses,
	// anthropic-messages or google-generative-ai.
	APIType string `json:"api_type"`
	// Thinking is pi's level of thinking; none, or off, says that the model does
	// not reason.
	Thinking string `json:"thinking"`
	// ContextWindow and MaxTokens are what pi believes of the model; without them,
	// what the engine says.
	ContextWindow int `json:"context_window"`
	MaxTokens     int `json:"max_tokens"`
	// Compat overrides pi's view of what the endpoint can do.
	Compat map[string]json.RawMessage `json:"compat"`
	// Compaction overrides pi's settings of that name, such as keepRecentTokens.
	Compaction map[string]json.RawMessage `json:"compaction"`
}

// Pi is the pi coding agent.
func Pi() CLI {
	return newCLI(Product{
		Name: "pi", Source: SourceNPM, Package: "@earendil-works/pi-coding-agent", Command: "pi",
		Oldest: "0.87.1", Newest: "0.87.1", Wires: []string{"chat", "responses", "anthropic", "gemini"},
	}, planPi)
}

// piPaths are where each of pi's wires is found below the gateway's address.
var piPaths = map[string]string{
	"openai-completions":   "/v1",
	"openai-responses":     "/v1",
	"anthropic-messages":   "",
	"google-generative-ai": "/v1beta",
}

// piThinking are pi's levels of thinking.
var piThinking = []string{"off", "minimal", "low", "medium", "high", "xhigh", "max"}

func planPi(program string, c PiConfig, j Job) (Plan, error) {
	if len(j.Agent.MCPServers) > 0 {
		return Plan{}, polar.Invalid("agent.mcp_servers", "pi has no MCP client")
	}
	if c.APIType == "" {
		c.APIType = "openai-completions"
	}
	below, ok := piPaths[c.APIType]
	if !ok {
		return Plan{}, polar.Invalid("agent.settings.api_type",
			"%q is not known; known: anthropic-messages, google-generative-ai, openai-completions, openai-responses", c.APIType)
	}
	if c.Thinking != "" && !slices.Contains(piThinking, c.Thinking) {
		return Plan{}, polar.Invalid("agent.settings.thinking", "%q is not known; known: %s", c.Thinking, strings.Join(piThinking, ", "))
	}
	if c.ContextWindow < 0 || c.MaxTokens < 0 {
		return Plan{}, polar.Invalid("agent.settings", "context_window and max_tokens must be above 0")
	}
	window, answer := j.limits(c.ContextWindow, c.MaxTokens)
	model := piModel{
		ID: j.modelOrPolar(), API: c.APIType, Input: []string{"text"}, Reasoning: c.Thinking != "" && c.Thinking != "off",
		ContextWindow: window, MaxTokens: answer,
	}
	provider := piProvider{BaseURL: j.BaseURL + below, API: c.APIType, APIKey: j.Key, Models: []piModel{model}}
	if c.APIType == "openai-completions" {
		provider.Compat = piCompat(model.Reasoning, c.Compat)
	}
	home := path.Join(j.Paths.Home, ".pi/agent")
	models, err := jsonFile(path.Join(home, "models.json"), map[string]map[string]piProvider{"providers": {"polar": provider}})
	if err != nil {
		return Plan{}, err
	}
	settings, err := jsonFile(path.Join(home, "settings.json"), piSettings{
		Retry: piRetry{MaxRetries: 3, BaseDelay: 1000}, Compaction: piCompaction(model.ContextWindow, c.Compaction),
	})
	if err != nil {
		return Plan{}, err
	}
	instruction := instructionFile(home, j)
	args := []string{program, "--provider", "polar", "--model", model.ID, "--mode", "json", "--print", "--no-session"}
	if c.Thinking != "" {
		args = append(args, "--thinking", c.Thinking)
	}
	return Plan{
		Files: []File{models, settings, instruction},
		Env:   map[string]string{"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
		Setup: copySkills(j.Agent.SkillsPath, path.Join(home, "skills")),
		Run:   []Step{{Args: withInput(instruction.Path, args...), Log: "pi.jsonl", Errors: "pi.stderr.log"}},
		Judge: judgePi,
	}, nil
}

type piSettings struct {
	Retry      piRetry                    `json:"retry"`
	Compaction map[string]json.RawMessage `json:"compaction,omitempty"`
	// HTTPIdleTimeout is off: how long a call may wait for the engine is for the
	// gateway to say.
	HTTPIdleTimeout int `json:"httpIdleTimeoutMs"`
}

// piRetry is how often pi asks again, and how many milliseconds it waits before
// it first does. The gateway asks the engine again by itself before it reports a
// failure.
type piRetry struct {
	MaxRetries int `json:"maxRetries"`
	BaseDelay  int `json:"baseDelayMs"`
}

// piCompaction keeps what pi reserves for an answer, and what it never
// summarises, to parts of a small window: pi's own numbers are for large ones,
// and with more than the window has it never compacts. The task's word is over
// it.
func piCompaction(window int, over map[string]json.RawMessage) map[string]json.RawMessage {
	compaction := map[string]json.RawMessage{}
	for name, usual := range map[string]int{"reserveTokens": 16384, "keepRecentTokens": 20000} {
		if part := window / 4; part < usual {
			compaction[name] = json.RawMessage(strconv.Itoa(part))
		}
	}
	maps.Copy(compaction, over)
	return compaction
}

type piProvider struct {
	BaseURL string                     `json:"baseUrl"`
	API     string                     `json:"api"`
	APIKey  string                     `json:"apiKey"`
	Compat  map[string]json.RawMessage `json:"compat,omitempty"`
	Models  []piModel                  `json:"models"`
}

type piModel struct {
	ID            string   `json:"id"`
	API           string   `json:"api"`
	Reasoning     bool     `json:"reasoning"`
	Input         []string `json:"input"`
	ContextWindow int      `json:"contextWindow"`
	MaxTokens     int      `json:"maxTokens"`
}

// piCompat is what an engine behind the gateway can do, with the task's word
// over it. The level of thinking is asked for if the task has one.
func piCompat(reasoning bool, over map[string]json.RawMessage) map[string]json.RawMessage {
	compat := map[string]json.RawMessage{
		"supportsDeveloperRole": json.RawMessage("false"), "supportsReasoningEffort": json.RawMessage(strconv.FormatBool(reasoning)),
		"supportsStore": json.RawMessage("false"), "maxTokensField": json.RawMessage(`"max_tokens"`),
	}
	maps.Copy(compat, over)
	return compat
}

// judgePi reads pi's events. Its exit code is 0 also when every call failed;
// the last answer tells.
func judgePi(e Ending) *polar.Failure {
	var last struct {
		Role  string `json:"role"`
		Stop  string `json:"stopReason"`
		Error string `json:"errorMessage"`
	}
	for line := range lines(e.Stdout) {
		var event struct {
			Type    string          `json:"type"`
			Message json.RawMessage `json:"message"`
		}
		if json.Unmarshal(line, &event) != nil || event.Type != "message_end" {
			continue
		}
		message := last
		message.Role, message.Stop, message.Error = "", "", ""
		if json.Unmarshal(event.Message, &message) == nil && message.Role == "assistant" {
			last = message
		}
	}
	if last.Stop == "error" {
		return failed(blameFor(last.Error), "%s", last.Error)
	}
	return exited(e)
}
