package harness

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"polar"
)

// CodexConfig is the settings of the codex harness.
type CodexConfig struct {
	CLIConfig
	// ReasoningEffort and ReasoningSummary are asked of the model with every
	// call; none leaves them to codex.
	ReasoningEffort  string `json:"reasoning_effort"`
	ReasoningSummary string `json:"reasoning_summary"`
	// ContextWindow is what codex believes of the model; without it, what the
	// engine says. AutoCompactLimit is how
	// many tokens a conversation may have before codex summarises it. It does so
	// by the usage it is told, never because a call was too long.
	ContextWindow    int `json:"context_window"`
	AutoCompactLimit int `json:"auto_compact_limit"`
}

// Codex is OpenAI's Codex CLI.
func Codex() CLI {
	return newCLI(Product{
		Name: "codex", Source: SourceNPM, Package: "@openai/codex", Command: "codex",
		Oldest: "0.166.0", Newest: "0.166.0", Wires: []string{"responses"},
	}, planCodex)
}

func planCodex(program string, c CodexConfig, j Job) (Plan, error) {
	if c.ContextWindow < 0 || c.AutoCompactLimit < 0 {
		return Plan{}, polar.Invalid("agent.settings", "context_window and auto_compact_limit must be above 0")
	}
	if err := oneOf("agent.settings.reasoning_summary", c.ReasoningSummary, "auto", "concise", "detailed", "none"); err != nil {
		return Plan{}, err
	}
	config, err := codexConfig(c, j)
	if err != nil {
		return Plan{}, err
	}
	home := path.Join(j.Paths.Home, ".codex")
	args := []string{program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"}
	instruction := instructionFile(home, j)
	return Plan{
		Files: []File{{Path: path.Join(home, "config.toml"), Content: config, Mode: 0o600}, instruction},
		Env:   map[string]string{"CODEX_HOME": home},
		Setup: copySkills(j.Agent.SkillsPath, path.Join(home, "skills")),
		Run:   []Step{{Args: withInput(instruction.Path, args...), Log: "codex.jsonl", Errors: "codex.stderr.log"}},
		Keep:  []Keep{{Path: path.Join(home, "sessions"), Name: "sessions"}},
		Judge: judgeCodex,
	}, nil
}

// codexConfig is codex' config.toml. The provider is one of our own, because
// the built-in one tries a WebSocket first. It retries little, since the gateway
// has retried the engine before it gives up, and it waits longer for a slow
// engine than the gateway does.
func codexConfig(c CodexConfig, j Job) ([]byte, error) {
	t := tomlFile{}
	t.set("model", j.modelOrPolar())
	t.set("model_provider", "polar")
	t.setIf("model_reasoning_effort", c.ReasoningEffort)
	t.setIf("model_reasoning_summary", c.ReasoningSummary)
	t.setIf("model_context_window", orElse(c.ContextWindow, j.ContextWindow))
	t.setIf("model_auto_compact_token_limit", c.AutoCompactLimit)
	t.set("web_search", "disabled")
	t.set("check_for_update_on_startup", false)
	t.table("model_providers.polar")
	t.set("name", "polar")
	t.set("base_url", j.BaseURL+"/v1")
	t.set("env_key", "OPENAI_API_KEY")
	t.set("wire_api", "responses")
	t.set("request_max_retries", 1)
	t.set("stream_max_retries", 2)
	t.set("stream_idle_timeout_ms", 3600000)
	t.table("analytics")
	t.set("enabled", false)
	t.table("feedback")
	t.set("enabled", false)
	t.table("otel")
	t.set("exporter", "none")
	t.set("metrics_exporter", "none")
	t.set("trace_exporter", "none")
	t.table("features")
	for _, name := range []string{"apps", "plugin_discovery_prefetch", "plugins", "remote_plugin", "tool_suggest"} {
		t.set(name, false)
	}
	for i, s := range j.Agent.MCPServers {
		t.table("mcp_servers." + s.Name) // checkMCP lets only bare keys through
		t.set("required", true)          // else the agent goes on without its tools
		t.set("startup_timeout_sec", 120)
		switch s.Transport {
		case mcpStdio:
			t.set("command", s.Command)
			t.set("args", append([]string{}, s.Args...))
		case mcpHTTP:
			t.set("url", s.URL)
		default:
			return nil, polar.Invalid(fmt.Sprintf("agent.mcp_servers[%d].transport", i), "codex knows stdio and streamable-http, not %s", s.Transport)
		}
	}
	return t.Bytes(), nil
}

// judgeCodex reads codex' events. The last turn tells; an error before it was
// retried.
func judgeCodex(e Ending) *polar.Failure {
	var failure string
	for line := range lines(e.Stdout) {
		var event struct {
			Type    string `json:"type"`
			Message string `json:"message"`
			Error   struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		switch event.Type {
		case "turn.completed":
			failure = ""
		case "turn.failed":
			failure = event.Error.Message
		case "error":
			failure = event.Message
		}
	}
	if failure != "" {
		return failed(blameFor(failure), "%s", failure)
	}
	f := exited(e)
	if f != nil && strings.Contains(f.Message, "required MCP servers failed to initialize") {
		f.Blame = polar.BlameTask
	}
	return f
}
