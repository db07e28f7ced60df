package harness

import (
	"encoding/json"
	"fmt"
	"path"

	"polar"
)

// OpencodeConfig is the settings of the opencode harness.
type OpencodeConfig struct {
	CLIConfig
	// API is the wire: chat (the default) or responses.
	API string `json:"api"`
	// Variant is opencode's level of reasoning; naming one says that the model
	// reasons.
	Variant string `json:"variant"`
	// Agent is the primary agent that gets the instruction; none means opencode's
	// own default, build.
	Agent string `json:"agent"`
	// ContextWindow and MaxTokens are what opencode believes of the model; without
	// them, what the engine says.
	ContextWindow int `json:"context_window"`
	MaxTokens     int `json:"max_tokens"`
}

// Opencode is the opencode agent.
func Opencode() CLI {
	return newCLI(Product{
		Name: "opencode", Source: SourceNPM, Package: "opencode-ai", Command: "opencode",
		Oldest: "1.18.33", Newest: "1.18.33", Wires: []string{"chat", "responses"},
	}, planOpencode)
}

// opencodeDrivers are the client libraries by wire. All are part of opencode;
// nothing is loaded for them.
var opencodeDrivers = map[string]string{
	"chat":      "@ai-sdk/openai-compatible",
	"responses": "@ai-sdk/openai",
}

func planOpencode(program string, c OpencodeConfig, j Job) (Plan, error) {
	driver, ok := opencodeDrivers[orElse(c.API, "chat")]
	if !ok {
		return Plan{}, polar.Invalid("agent.settings.api", "%q is not known; known: chat, responses", c.API)
	}
	if c.ContextWindow < 0 || c.MaxTokens < 0 {
		return Plan{}, polar.Invalid("agent.settings", "context_window and max_tokens must be above 0")
	}
	window, answer := j.limits(c.ContextWindow, c.MaxTokens)
	model := j.modelOrPolar()
	home := path.Join(j.Paths.Home, ".config/opencode")
	config, err := jsonFile(path.Join(home, "opencode.json"), opencodeSettings{
		Model: "polar/" + model, SmallModel: "polar/" + model, EnabledProviders: []string{"polar"},
		Permission: "allow", Share: "disabled", MCP: opencodeMCP(j.Agent.MCPServers),
		Provider: map[string]opencodeProvider{"polar": {
			NPM: driver, Name: "polar",
			Options: opencodeOptions{BaseURL: j.BaseURL + "/v1", APIKey: j.Key},
			Models: map[string]opencodeModel{model: {
				Name: model, Reasoning: c.Variant != "",
				Limit: opencodeLimit{Context: window, Output: answer},
			}},
		}},
	})
	if err != nil {
		return Plan{}, err
	}
	// opencode wraps an instruction on its command line in quotes; what it reads
	// from its input it takes as it is. A title of its own saves the model call
	// that would make one up.
	instruction := instructionFile(home, j)
	args := []string{program, "run", "--format", "json", "--thinking", "--title", string(j.Session), "--model", "polar/" + model}
	if c.Variant != "" {
		args = append(args, "--variant", c.Variant)
	}
	if c.Agent != "" {
		args = append(args, "--agent", c.Agent)
	}
	return Plan{
		Files: append([]File{config, instruction}, opencodePlugins(home)...),
		Env:   opencodeEnv(),
		Setup: copySkills(j.Agent.SkillsPath, path.Join(home, "skills")),
		Run:   []Step{{Args: withInput(instruction.Path, args...), Log: "opencode.jsonl", Errors: "opencode.stderr.log"}},
		Keep:  []Keep{{Path: path.Join(j.Paths.Home, ".local/share/opencode/log"), Name: "opencode-log"}},
		Judge: judgeOpencode,
	}, nil
}

// opencodeEnv keeps opencode from asking the world for anything.
func opencodeEnv() map[string]string {
	return map[string]string{
		"OPENCODE_DISABLE_AUTOUPDATE":      "1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD":    "1",
		"OPENCODE_DISABLE_MODELS_FETCH":    "1",
		"OPENCODE_DISABLE_SHARE":           "1",
		"OPENCODE_DISABLE_TERMINAL_TITLE":  "1",
		"OPENCODE_FAKE_VCS":                "git",
	}
}

type opencodeSettings struct {
	Model            string                      `json:"model"`
	SmallModel       string                      `json:"small_model"`
	AutoUpdate       bool                        `json:"autoupdate"`
	Snapshot         bool                        `json:"snapshot"`
	Share            string                      `json:"share"`
	Permission       string                      `json:"permission"`
	EnabledProviders []string                    `json:"enabled_providers"`
	Provider         map[string]opencodeProvider `json:"provider"`
	MCP              map[string]opencodeServer   `json:"mcp,omitempty"`
}

type opencodeProvider struct {
	NPM     string                   `json:"npm"`
	Name    string                   `json:"name"`
	Options opencodeOptions          `json:"options"`
	Models  map[string]opencodeModel `json:"models"`
}

type opencodeOptions struct {
	BaseURL string `json:"baseURL"`
	APIKey  string `json:"apiKey"`
	// HeaderTimeout is off: how long a call may wait for the engine is for the
	// gateway to say.
	HeaderTimeout bool `json:"headerTimeout"`
}

type opencodeModel struct {
	Name      string        `json:"name"`
	Reasoning bool          `json:"reasoning"`
	Limit     opencodeLimit `json:"limit"`
}

type opencodeLimit struct {
	Context int `json:"context"`
	Output  int `json:"output"`
}

type opencodeServer struct {
	Type    string   `json:"type"`
	Command []string `json:"command,omitempty"`
	URL     string   `json:"url,omitempty"`
	Enabled bool     `json:"enabled"`
	// Timeout is for a server to start and to answer, in milliseconds.
	Timeout int `json:"timeout"`
}

func opencodeMCP(servers []polar.MCPServer) map[string]opencodeServer {
	made := map[string]opencodeServer{}
	for _, s := range servers {
		server := opencodeServer{Type: "remote", URL: s.URL, Enabled: true, Timeout: 60_000}
		if s.Transport == mcpStdio {
			server.Type, server.URL, server.Command = "local", "", append([]string{s.Command}, s.Args...)
		}
		made[s.Name] = server
	}
	return made
}

// opencodePlugins makes a folder of opencode's settings look as if the library
// for plug-ins were installed there already; else opencode gets it from the
// registry whenever it starts.
func opencodePlugins(dir string) []File {
	lock := `{"lockfileVersion": 3, "packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}` + "\n"
	return []File{
		{Path: path.Join(dir, "package-lock.json"), Content: []byte(lock), Mode: 0o600},
		{Path: path.Join(dir, "node_modules/.package-lock.json"), Content: []byte(lock), Mode: 0o600},
	}
}

// judgeOpencode reads opencode's events. It exits with 1 after any error, also
// one that it got over, such as a context that it compacted; the last event
// tells.
func judgeOpencode(e Ending) *polar.Failure {
	var trouble *polar.Failure
	told := false
	for line := range lines(e.Stdout) {
		var event struct {
			Type  string        `json:"type"`
			Error opencodeError `json:"error"`
		}
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		switch event.Type {
		case "error":
			trouble = event.Error.failure()
		case "step_finish":
			trouble, told = nil, true
		}
	}
	if trouble != nil || told {
		return trouble
	}
	return exited(e)
}

type opencodeError struct {
	Name string `json:"name"`
	Data struct {
		Message string `json:"message"`
		Status  int    `json:"statusCode"`
	} `json:"data"`
}

func (e opencodeError) failure() *polar.Failure {
	message := orElse(e.Data.Message, e.Name)
	switch {
	case e.Name == "ContextOverflowError":
		return failed(polar.BlameAgent, "%s", message)
	case e.Data.Status != 0:
		return failed(blameFor(fmt.Sprintf("HTTP %d: %s", e.Data.Status, message)), "%d %s", e.Data.Status, message)
	}
	return failed(blameFor(message), "%s", message)
}
