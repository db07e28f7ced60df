package harness

import (
	"encoding/json"
	"path"
	"strings"

	"polar"
)

// GeminiConfig is the settings of the gemini_cli harness.
type GeminiConfig struct {
	CLIConfig
	geminiFamily
	// Sandbox lets Gemini CLI run its tools in a container of its own, inside the
	// session's sandbox.
	Sandbox bool `json:"sandbox"`
}

// GeminiCLI is Google's Gemini CLI.
func GeminiCLI() CLI {
	return newCLI(Product{
		Name: "gemini_cli", Source: SourceNPM, Package: "@google/gemini-cli", Command: "gemini",
		Oldest: "0.61.0", Newest: "0.61.0", Wires: []string{"gemini"},
	}, planGemini)
}

// geminiTokenLimit is the context window that Gemini CLI takes every model to
// have whose name it does not know.
const geminiTokenLimit = 1 << 20

func planGemini(program string, c GeminiConfig, j Job) (Plan, error) {
	if err := c.check(); err != nil {
		return Plan{}, err
	}
	home := path.Join(j.Paths.Home, ".gemini")
	settings, err := jsonFile(path.Join(home, "settings.json"), geminiSettings(c, j))
	if err != nil {
		return Plan{}, err
	}
	prompt, files := geminiPrompt(j.Instruction, path.Join(home, "commands"))
	args := []string{program, "--model=" + j.modelOrPolar(), "--approval-mode=yolo", "--output-format=stream-json"}
	if c.Sandbox {
		args = append(args, "--sandbox")
	}
	return Plan{
		Files: append([]File{settings}, files...),
		Env: map[string]string{
			"GEMINI_CLI_TRUST_WORKSPACE": "true",
			// Else it starts itself a second time with more memory, which costs more
			// than the rest of its start.
			"GEMINI_CLI_NO_RELAUNCH": "true",
		},
		Setup: copySkills(j.Agent.SkillsPath, path.Join(home, "skills")),
		Run:   []Step{{Args: append(args, "--prompt="+prompt), Log: "gemini_cli.jsonl", Errors: "gemini_cli.stderr.log"}},
		Keep:  []Keep{{Path: path.Join(home, "tmp"), Name: "gemini_cli"}},
		Judge: judgeGemini,
	}, nil
}

func geminiSettings(c GeminiConfig, j Job) map[string]any {
	c.ContextWindow = orElse(c.ContextWindow, j.ContextWindow)
	off := map[string]any{"enabled": false}
	model := map[string]any{
		"name": j.modelOrPolar(), "skipNextSpeakerCheck": !c.NextSpeakerCheck, "disableLoopDetection": !c.LoopDetection,
	}
	if c.MaxTurns > 0 {
		model["maxSessionTurns"] = c.MaxTurns
	}
	if c.ContextWindow > 0 || c.CompressionThreshold > 0 {
		model["compressionThreshold"] = orElse(c.CompressionThreshold, 0.5) * float64(orElse(c.ContextWindow, geminiTokenLimit)) / geminiTokenLimit
	}
	generation := map[string]any{}
	if c.MaxTokens > 0 {
		generation["maxOutputTokens"] = c.MaxTokens
	}
	if c.Thinking != nil {
		budget := 0
		if *c.Thinking {
			budget = -1 // as much as it takes
		}
		generation["thinkingConfig"] = map[string]any{"includeThoughts": *c.Thinking, "thinkingBudget": budget}
	}
	overrides := []any{
		// One model for everything, also what is meant for a smaller one.
		map[string]any{"match": map[string]any{"overrideScope": "core"}, "modelConfig": map[string]any{"model": j.modelOrPolar()}},
	}
	if len(generation) > 0 {
		overrides = append(overrides, map[string]any{
			"match": map[string]any{"model": "chat-base"}, "modelConfig": map[string]any{"generateContentConfig": generation},
		})
	}
	return map[string]any{
		"general": map[string]any{
			"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "sessionRetention": off,
			"maxAttempts": 3, // the gateway has tried the engine again already
		},
		"ui":           map[string]any{"showCompatibilityWarnings": false},
		"ide":          off,
		"privacy":      map[string]any{"usageStatisticsEnabled": false},
		"telemetry":    off,
		"model":        model,
		"modelConfigs": map[string]any{"customOverrides": overrides},
		"mcpServers":   geminiMCPServers(j.Agent.MCPServers),
		"security":     map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}, "folderTrust": off},
		"advanced":     map[string]any{"autoConfigureMemory": false, "ignoreLocalEnv": true},
	}
}

// geminiPrompt is what to give Gemini CLI so that the model reads the instruction
// as it stands: a special one becomes the text of a command in the folder, and
// the command the prompt. A command fills in certain marks in its text; of an
// instruction that has them, files that it names with '@' are shown too.
func geminiPrompt(instruction, commands string) (prompt string, files []File) {
	if !isSpecial(instruction) {
		return instruction, nil
	}
	for _, mark := range []string{"{{args}}", "!{", "@{"} {
		if strings.Contains(instruction, mark) {
			return "\n" + instruction, nil // so that it is no command
		}
	}
	var command tomlFile
	command.set("prompt", instruction)
	return "/polar-task", []File{{Path: path.Join(commands, "polar-task.toml"), Content: command.Bytes(), Mode: 0o600}}
}

// judgeGemini reads Gemini CLI's events. The last one is its verdict; what was
// wrong stands there or, of an answer it could not use, in an error before it.
func judgeGemini(e Ending) *polar.Failure {
	var ended bool
	var status, wrong string
	for line := range lines(e.Stdout) {
		var event struct {
			Type     string `json:"type"`
			Severity string `json:"severity"`
			Message  string `json:"message"`
			Status   string `json:"status"`
			Error    struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		switch event.Type {
		case "error":
			if event.Severity == "error" {
				wrong = event.Message
			}
		case "result":
			ended, status = true, event.Status
			wrong = orElse(event.Error.Message, wrong)
		}
	}
	switch {
	case status == "error":
		blame := blameFor(wrong)
		if http := e.Code + 256; http >= 500 { // what is left of it in an exit code
			blame = polar.BlameService
		}
		return failed(blame, "%s", orElse(wrong, "an error without a message"))
	case ended:
		return nil
	}
	return exited(e)
}
