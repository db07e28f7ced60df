package clitest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"polar/harness"
)

// TestEverySettingIsDocumented holds the page of the harnesses against their
// settings.
func TestEverySettingIsDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "docs", "harnesses.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]any{
		"claude_code": harness.ClaudeCodeConfig{}, "codex": harness.CodexConfig{}, "gemini_cli": harness.GeminiConfig{},
		"mini": harness.MiniConfig{}, "mini_swe_agent": harness.MiniSWEAgentConfig{}, "opencode": harness.OpencodeConfig{},
		"openhands_sdk": harness.OpenHandsSDKConfig{}, "pi": harness.PiConfig{}, "qwen_code": harness.QwenConfig{}, "shell": harness.ShellConfig{},
	} {
		_, section, ok := strings.Cut(string(data), "\n## "+name+"\n")
		if !ok {
			t.Errorf("there is no section %s", name)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, setting := range settingsOf(reflect.TypeOf(settings)) {
			if !strings.Contains(section, "`"+setting+"`") {
				t.Errorf("the section %s has no `%s`", name, setting)
			}
		}
	}
}

// settingsOf are the names of a preset's own settings.
func settingsOf(of reflect.Type) (names []string) {
	for field := range of.Fields() {
		switch {
		case field.Type == reflect.TypeFor[harness.CLIConfig]():
		case field.Anonymous:
			names = append(names, settingsOf(field.Type)...)
		default:
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}
