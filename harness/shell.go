package harness

import (
	"strings"

	"polar"
	"polar/sandbox"
)

// ShellConfig has no settings: what the shell harness runs is the agent's
// custom_shell.
type ShellConfig struct{}

// Shell runs a command line of the task's own, in any language and for any
// harness that has no preset. {instruction} in it becomes the instruction,
// quoted for the shell.
func Shell(ShellConfig) (Preset, error) { return planShell, nil }

func planShell(j Job) (Plan, error) {
	if err := refuseExtras("shell", j.Agent); err != nil {
		return Plan{}, err
	}
	cs := j.Agent.CustomShell
	switch {
	case cs == nil:
		return Plan{}, polar.Invalid("agent.custom_shell", "missing; the shell harness runs its command")
	case strings.TrimSpace(cs.Command) == "":
		return Plan{}, polar.Invalid("agent.custom_shell.command", "missing")
	}
	line := strings.ReplaceAll(cs.Command, "{instruction}", quote(j.Instruction))
	if len(line) > MaxArgument {
		return Plan{}, polar.Invalid("agent.custom_shell.command",
			"is %d bytes with the instruction in it, a command line takes at most %d; use $POLAR_INSTRUCTION", len(line), MaxArgument)
	}
	return Plan{Run: []Step{{Args: sandbox.Bash(line), Dir: cs.Cwd, Env: cs.Env, Log: "shell.log"}}}, nil
}

// MaxArgument is the longest argument or variable that Linux passes to a
// program, less room for the variable's name.
const MaxArgument = 128<<10 - 256

// quote makes one word of s for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// refuseExtras names what a harness has no use for, so that nothing a task
// asks for is silently left out.
func refuseExtras(name string, a polar.Agent) error {
	switch {
	case len(a.MCPServers) > 0:
		return polar.Invalid("agent.mcp_servers", "the %s harness has no MCP client", name)
	case a.SkillsPath != "":
		return polar.Invalid("agent.skills_path", "the %s harness has no skills", name)
	case a.CustomShell != nil && name != "shell":
		return polar.Invalid("agent.custom_shell", "is for the shell harness, this is %s", name)
	}
	return nil
}
