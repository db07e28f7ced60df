package harness

import (
	"encoding/json"
	"path"

	"polar"
)

// PiConfig is the settings of the pi harness.
type PiConfig struct {
	CLIConfig
	// APIType is the wire: openai-completions (the default), openai-responses,
	// anthropic-messages or google-generative-ai.
	APIType string `json:"api_type"`
	// Thinking is pi's level of thinking; none leaves it to pi.
	Thinking string `json:"thinking"`
	// ContextWindow and MaxTokens are what pi believes of the model.
	ContextWindow int `json:"context_window"`
	MaxTokens     int `json:"max_tokens"`
	// Compat overrides pi's view of what the endpoint can do.
	Compat map[string]json.RawMessage `json:"compat"`
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
	if c.ContextWindow < 0 || c.MaxTokens < 0 {
		return Plan{}, polar.Invalid("agent.settings", "context_window and max_tokens must be above 0")
	}
	model := piModel{
		ID: j.modelOr("polar"), API: c.APIType, Input: []string{"text"}, Reasoning: c.Thinking != "" && c.Thinking != "off",
		ContextWindow: orElse(c.ContextWindow, 262144), MaxTokens: orElse(c.MaxTokens, 8192),
	}
	provider := piProvider{BaseURL: j.BaseURL + below, API: c.APIType, APIKey: j.Key, Models: []piModel{model}}
	if c.APIType == "openai-completions" {
		provider.Compat = piCompat(c.Compat)
	}
	models, err := jsonFile(path.Join(j.Paths.Home, ".pi/agent/models.json"), map[string]map[string]piProvider{"providers": {"polar": provider}})
	if err != nil {
		return Plan{}, err
	}
	args := []string{program, "--provider", "polar", "--model", model.ID, "--mode", "json", "--print", "--no-session"}
	if c.Thinking != "" {
		args = append(args, "--thinking", c.Thinking)
	}
	return Plan{
		Files: []File{models},
		Env:   map[string]string{"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
		Setup: copySkills(j.Agent.SkillsPath, path.Join(j.Paths.Home, ".pi/agent/skills")),
		Run:   []Step{{Args: append(args, j.Instruction), Log: "pi.jsonl", Errors: "pi.stderr.log"}},
		Judge: judgePi,
	}, nil
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
// over it.
func piCompat(over map[string]json.RawMessage) map[string]json.RawMessage {
	compat := map[string]json.RawMessage{
		"supportsDeveloperRole": json.RawMessage("false"), "supportsReasoningEffort": json.RawMessage("false"),
		"supportsStore": json.RawMessage("false"), "maxTokensField": json.RawMessage(`"max_tokens"`),
	}
	for k, v := range over {
		compat[k] = v
	}
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
