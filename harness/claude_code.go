package harness

import (
	"encoding/json"
	"path"
	"strconv"
	"strings"

	"polar"
)

// ClaudeCodeConfig is the settings of the claude_code harness. What is not set
// is left to Claude Code.
type ClaudeCodeConfig struct {
	CLIConfig
	// MaxTurns ends the agent after so many answers of the model; using them up
	// is a failure of the agent.
	MaxTurns int `json:"max_turns"`
	// ReasoningEffort is Claude Code's effort: low, medium, high, xhigh or max.
	ReasoningEffort string `json:"reasoning_effort"`
	// MaxBudgetUSD counts by Anthropic's prices, whatever the engine costs.
	MaxBudgetUSD       float64 `json:"max_budget_usd"`
	FallbackModel      string  `json:"fallback_model"`
	AppendSystemPrompt string  `json:"append_system_prompt"`
	// AllowedTools and DisallowedTools are Claude Code's rules, such as
	// "Bash(git:*)".
	AllowedTools      toolRules `json:"allowed_tools"`
	DisallowedTools   toolRules `json:"disallowed_tools"`
	MaxThinkingTokens int       `json:"max_thinking_tokens"`
	// ContextWindow is how many tokens a conversation may have before Claude Code
	// summarises it; without it, what the engine says that it takes. It also
	// summarises when a call was too long.
	ContextWindow int `json:"context_window"`
	// MaxTokens bounds an answer.
	MaxTokens int `json:"max_tokens"`
}

// toolRules is a list, or one string as Claude Code's own flags take it.
type toolRules []string

// UnmarshalJSON reads either.
func (t *toolRules) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = toolRules{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// ClaudeCode is Anthropic's Claude Code.
func ClaudeCode() CLI {
	return newCLI(Product{
		Name: "claude_code", Source: SourceNPM, Package: "@anthropic-ai/claude-code", Command: "claude",
		Oldest: "2.1.325", Newest: "2.1.325", Wires: []string{"anthropic"},
	}, planClaudeCode)
}

func planClaudeCode(program string, c ClaudeCodeConfig, j Job) (Plan, error) {
	if c.MaxTurns < 0 || c.MaxBudgetUSD < 0 || c.MaxThinkingTokens < 0 || c.ContextWindow < 0 || c.MaxTokens < 0 {
		return Plan{}, polar.Invalid("agent.settings", "max_turns, max_budget_usd, max_thinking_tokens, context_window and max_tokens must be above 0")
	}
	if err := oneOf("agent.settings.reasoning_effort", c.ReasoningEffort, "low", "medium", "high", "xhigh", "max"); err != nil {
		return Plan{}, err // Claude Code would pass over it
	}
	home := path.Join(j.Paths.Home, ".claude")
	args := []string{program, "--print", "--verbose", "--output-format", "stream-json", "--dangerously-skip-permissions", "--strict-mcp-config"}
	settings, err := jsonFile(path.Join(home, "settings.json"), claudeSettings)
	if err != nil {
		return Plan{}, err
	}
	instruction := instructionFile(home, j)
	files := []File{settings, instruction}
	if len(j.Agent.MCPServers) > 0 {
		servers, err := jsonFile(path.Join(home, "mcp.json"), map[string]any{"mcpServers": claudeMCP(j.Agent.MCPServers)})
		if err != nil {
			return Plan{}, err
		}
		files, args = append(files, servers), append(args, "--mcp-config", servers.Path)
	}
	for _, flag := range []struct{ name, value string }{
		{"--max-turns", number(c.MaxTurns)},
		{"--effort", c.ReasoningEffort},
		{"--max-budget-usd", number(c.MaxBudgetUSD)},
		{"--fallback-model", c.FallbackModel},
		{"--append-system-prompt", c.AppendSystemPrompt},
		{"--allowedTools", strings.Join(c.AllowedTools, ",")},
		{"--disallowedTools", strings.Join(append(toolRules{"WebSearch"}, c.DisallowedTools...), ",")}, // a service of Anthropic's
	} {
		if flag.value != "" {
			args = append(args, flag.name, flag.value)
		}
	}
	return Plan{
		Files: files,
		Env:   claudeEnv(home, c, j),
		Setup: copySkills(j.Agent.SkillsPath, path.Join(home, "skills")),
		Run:   []Step{{Args: withInput(instruction.Path, args...), Log: "claude_code.jsonl", Errors: "claude_code.stderr.log"}},
		Keep:  []Keep{{Path: path.Join(home, "projects"), Name: "projects"}},
		Judge: judgeClaudeCode,
	}, nil
}

// claudeSettings keep Claude Code from asking its maker whether an address may
// be fetched.
var claudeSettings = map[string]bool{"skipWebFetchPreflight": true}

// claudeEnv is where Claude Code has most of its settings. Every model it may
// think of is the one that is served. It retries little, since the gateway has
// retried the engine before it gives up, and waits for slow engines.
func claudeEnv(home string, c ClaudeCodeConfig, j Job) map[string]string {
	env := map[string]string{
		"CLAUDE_CONFIG_DIR": home,
		"IS_SANDBOX":        "1", // else it refuses to skip permissions as root
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"CLAUDE_CODE_MAX_RETRIES":                  "3",
		"API_TIMEOUT_MS":                           "3600000",
		"DISABLE_AUTOUPDATER":                      "1",
		"MCP_TIMEOUT":                              "120000",
		"ENABLE_TOOL_SEARCH":                       "false", // else the prompt's tools change in mid-session
	}
	model := j.modelOrPolar()
	for _, name := range []string{
		"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_FABLE_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL",
		"ANTHROPIC_DEFAULT_SONNET_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
	} {
		env[name] = model
	}
	c.ContextWindow = orElse(c.ContextWindow, j.ContextWindow)
	window, percent := claudeWindow(c)
	for name, value := range map[string]string{
		"MAX_THINKING_TOKENS":             number(c.MaxThinkingTokens),
		"CLAUDE_CODE_AUTO_COMPACT_WINDOW": number(window),
		"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": number(percent),
		"CLAUDE_CODE_MAX_OUTPUT_TOKENS":   number(c.MaxTokens),
	} {
		if value != "" {
			env[name] = value
		}
	}
	return env
}

// claudeWindow is the window that Claude Code is told of, and at what share of
// it, less the room for a summary, it summarises; 0 leaves that to it. It takes
// every window below 100,000 for that, so of a smaller one the share is given:
// two thirds, as it is of 100,000.
func claudeWindow(c ClaudeCodeConfig) (window, percent int) {
	const least, summary = 100000, 20000
	if c.ContextWindow == 0 || c.ContextWindow >= least {
		return c.ContextWindow, 0
	}
	room := least - min(orElse(c.MaxTokens, summary), summary)
	return least, max(c.ContextWindow*67/room, 1)
}

// number writes a setting; 0 is none.
func number[N int | float64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(n), 'f', -1, 64)
}

type claudeServer struct {
	Type    string   `json:"type"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
}

func claudeMCP(servers []polar.MCPServer) map[string]claudeServer {
	types := map[string]string{mcpStdio: "stdio", mcpSSE: "sse", mcpHTTP: "http"}
	out := map[string]claudeServer{}
	for _, s := range servers {
		out[s.Name] = claudeServer{Type: types[s.Transport], Command: s.Command, Args: s.Args, URL: s.URL}
	}
	return out
}

// claudeEvent is what a judge reads of Claude Code's events.
type claudeEvent struct {
	Type    string   `json:"type"`
	Subtype string   `json:"subtype"`
	IsError bool     `json:"is_error"`
	Reason  string   `json:"terminal_reason"`
	Result  string   `json:"result"`
	Errors  []string `json:"errors"`
	Servers []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"mcp_servers"`
}

// judgeClaudeCode reads the last result. Claude Code gives one also when it
// could not go on, and calls that a success if it was the model's endpoint that
// failed. A tool server that is not to be had is no reason for it to stop.
func judgeClaudeCode(e Ending) *polar.Failure {
	var last claudeEvent
	var missing string
	for line := range lines(e.Stdout) {
		var this claudeEvent
		if json.Unmarshal(line, &this) != nil {
			continue
		}
		if this.Type == "result" {
			last = this
		}
		for _, s := range this.Servers {
			if s.Status == "failed" {
				missing = s.Name
			}
		}
	}
	switch message := last.message(); {
	case missing != "":
		return failed(polar.BlameTask, "the MCP server %s did not start", missing)
	case !last.IsError:
		return exited(e)
	case last.Reason == "api_error" || last.Subtype == "error_during_execution":
		return failed(blameFor(message), "%s", message)
	default:
		return failed(polar.BlameAgent, "%s", message)
	}
}

// message is what a result that is an error says.
func (r claudeEvent) message() string {
	if said := strings.Trim(strings.Join(append([]string{r.Result}, r.Errors...), "; "), "; "); said != "" {
		return said
	}
	return r.Subtype
}
