package harness

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"polar"
)

// QwenConfig is the settings of the qwen_code harness.
type QwenConfig struct {
	CLIConfig
	geminiFamily
}

// QwenCode is Alibaba's Qwen Code.
func QwenCode() CLI {
	return newCLI(Product{
		Name: "qwen_code", Source: SourceNPM, Package: "@qwen-code/qwen-code", Command: "qwen",
		Oldest: "0.24.4", Newest: "0.24.4", Wires: []string{"chat"},
	}, planQwen)
}

func planQwen(program string, c QwenConfig, j Job) (Plan, error) {
	if err := c.check(); err != nil {
		return Plan{}, err
	}
	home := path.Join(j.Paths.Home, ".qwen")
	settings, err := jsonFile(path.Join(home, "settings.json"), qwenSettings(c, j))
	if err != nil {
		return Plan{}, err
	}
	prompt, files := qwenPrompt(j.Instruction, path.Join(home, "commands"))
	args := []string{program, "--auth-type=openai", "--model=" + j.modelOrPolar(), "--approval-mode=yolo", "--output-format=stream-json", "--prompt=" + prompt}
	return Plan{
		Files: append([]File{settings}, files...),
		Env: map[string]string{
			// Only system settings are above those that a repository brings.
			"QWEN_CODE_SYSTEM_SETTINGS_PATH":  settings.Path,
			"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
			"QWEN_CODE_NO_RELAUNCH":           "true",
			"OPENAI_MODEL":                    j.modelOrPolar(),
		},
		Setup: copySkills(j.Agent.SkillsPath, path.Join(home, "skills")),
		Run:   []Step{{Args: args, Log: "qwen_code.jsonl", Errors: "qwen_code.stderr.log"}},
		Keep:  []Keep{{Path: path.Join(home, "projects"), Name: "qwen_code"}},
		Judge: judgeQwen,
	}, nil
}

func qwenSettings(c QwenConfig, j Job) map[string]any {
	c.ContextWindow = orElse(c.ContextWindow, j.ContextWindow)
	off := map[string]any{"enabled": false}
	generation := map[string]any{"maxRetries": 0} // beside the seven attempts that it always makes
	if c.ContextWindow > 0 {
		generation["contextWindowSize"] = c.ContextWindow
	}
	if c.MaxTokens > 0 {
		generation["samplingParams"] = map[string]any{"max_tokens": c.MaxTokens}
	}
	if c.Thinking != nil {
		generation["extra_body"] = map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": *c.Thinking}}
	}
	model := map[string]any{
		"name": j.modelOrPolar(), "skipNextSpeakerCheck": !c.NextSpeakerCheck, "skipLoopDetection": !c.LoopDetection,
		"generationConfig": generation,
	}
	if c.MaxTurns > 0 {
		model["maxSessionTurns"] = c.MaxTurns
	}
	settings := map[string]any{
		"general":   map[string]any{"enableAutoUpdate": false, "preventSystemSleep": false, "terminalBell": false},
		"ide":       off,
		"privacy":   map[string]any{"usageStatisticsEnabled": false},
		"telemetry": off,
		"model":     model,
		// Both would have the model called behind the task's back.
		"memory":     map[string]any{"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
		"mcpServers": geminiMCPServers(j.Agent.MCPServers),
		// Sessions on one machine must not hear of each other.
		"agents":   map[string]any{"crossSessionMessaging": false},
		"security": map[string]any{"auth": map[string]any{"selectedType": "openai"}, "folderTrust": off},
	}
	if c.CompressionThreshold > 0 {
		settings["context"] = map[string]any{"autoCompactThreshold": c.CompressionThreshold}
	}
	return settings
}

// qwenPrompt is what to give Qwen Code so that the model reads the instruction as
// it stands: a special one goes through a command in the folder whose text is
// its argument.
func qwenPrompt(instruction, commands string) (prompt string, files []File) {
	if !isSpecial(instruction) {
		return instruction, nil
	}
	command := "---\ndisable-model-invocation: true\n---\n{{args}}\n"
	argument := strings.ReplaceAll(instruction, "$", "$$") // it is put in as a JavaScript replacement
	return "/polar-task " + argument, []File{{Path: path.Join(commands, "polar-task.md"), Content: []byte(command), Mode: 0o600}}
}

// qwenWithoutMCP is what Qwen Code says of tool servers that it does without.
var qwenWithoutMCP = regexp.MustCompile(`MCP server\(s\) failed to start: (.+?)\. Continuing`)

// judgeQwen reads Qwen Code's events; the last one says whether it took itself
// to have failed.
func judgeQwen(e Ending) *polar.Failure {
	var ended, bad bool
	var wrong string
	for line := range lines(e.Stdout) {
		var event struct {
			Type    string `json:"type"`
			IsError bool   `json:"is_error"`
			Result  string `json:"result"`
			Error   struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(line, &event) != nil || event.Type != "result" {
			continue
		}
		ended, bad, wrong = true, event.IsError, orElse(event.Error.Message, event.Result)
	}
	if !ended {
		return exited(e)
	}
	for line := range lines(e.Stderr) {
		if missing := qwenWithoutMCP.FindSubmatch(line); missing != nil {
			return failed(polar.BlameTask, "the MCP server %s did not start", missing[1])
		}
	}
	if bad {
		return failed(blameFor(wrong), "%s", orElse(wrong, "an error without a message"))
	}
	return nil
}
