package harness_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/harness"
	"polar/sandbox"
)

// TestSpecialInstructions holds the prompts of Gemini CLI and Qwen Code against
// what was seen to reach the model as it stands.
func TestSpecialInstructions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cli          harness.CLI
		instruction  string
		prompt, file string
	}{
		"a plain one for Gemini CLI":         {harness.GeminiCLI(), "-x $1\n", "-x $1\n", ""},
		"a plain one for Qwen Code":          {harness.QwenCode(), "-x $1\n", "-x $1\n", ""},
		"a command of Gemini CLI":            {harness.GeminiCLI(), "/help me", "/polar-task", "prompt = \"/help me\"\n"},
		"a command of Qwen Code":             {harness.QwenCode(), "/help me", "/polar-task /help me", "---\ndisable-model-invocation: true\n---\n{{args}}\n"},
		"a file for Gemini CLI":              {harness.GeminiCLI(), "fix \"@a\"\n\x7f\\", "/polar-task", "prompt = \"fix \\\"@a\\\"\\n\\u007f\\\\\"\n"},
		"a file for Qwen Code":               {harness.QwenCode(), "fix @a $1\n", "/polar-task fix @a $$1\n", "---\ndisable-model-invocation: true\n---\n{{args}}\n"},
		"a mark of Gemini CLI's commands":    {harness.GeminiCLI(), "/x @{a}", "\n/x @{a}", ""},
		"a mark of Qwen Code's own commands": {harness.QwenCode(), "/x @{a}", "/polar-task /x @{a}", "---\ndisable-model-invocation: true\n---\n{{args}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			preset, err := c.cli.Opener(func(harness.Product, string) (harness.Kit, error) { return harness.Kit{}, nil })(nil)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := preset(harness.Job{Instruction: c.instruction, Paths: sandbox.Paths{Home: "/home"}})
			if err != nil {
				t.Fatal(err)
			}
			args := plan.Run[0].Args
			prompt, ok := strings.CutPrefix(args[len(args)-1], "--prompt=")
			file := ""
			for _, f := range plan.Files {
				if strings.Contains(f.Path, "/commands/polar-task.") {
					file = string(f.Content)
				}
			}
			if diff := cmp.Diff([]string{c.prompt, c.file}, []string{prompt, file}); !ok || diff != "" {
				t.Errorf("prompt and command (-want +got):\n%s", diff)
			}
		})
	}
}
