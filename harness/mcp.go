package harness

import (
	"fmt"
	"regexp"

	"polar"
)

// The transports of an MCP server.
const (
	mcpStdio = "stdio"
	mcpSSE   = "sse"
	mcpHTTP  = "streamable-http"
)

// mcpName is what every CLI takes as a name: it becomes part of tools' names.
var mcpName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// checkMCP refuses tool servers that no client could reach.
func checkMCP(servers []polar.MCPServer) error {
	seen := map[string]bool{}
	for i, s := range servers {
		field := fmt.Sprintf("agent.mcp_servers[%d]", i)
		switch {
		case !mcpName.MatchString(s.Name):
			return polar.Invalid(field+".name", "%q may have letters, digits, '_' and '-' only", s.Name)
		case seen[s.Name]:
			return polar.Invalid(field+".name", "%q is there twice", s.Name)
		case s.Transport != mcpStdio && s.Transport != mcpSSE && s.Transport != mcpHTTP:
			return polar.Invalid(field+".transport", "%q is not known; known: stdio, sse, streamable-http", s.Transport)
		case s.Transport == mcpStdio && s.Command == "":
			return polar.Invalid(field+".command", "missing; a stdio server is started by it")
		case s.Transport != mcpStdio && s.URL == "":
			return polar.Invalid(field+".url", "missing")
		}
		seen[s.Name] = true
	}
	return nil
}

// copySkills is the step that puts the skills of a task where a CLI looks for
// them. The folder of the task is in the sandbox; a prepare action puts it
// there.
func copySkills(from, to string) []Step {
	if from == "" {
		return nil
	}
	return []Step{{Args: []string{"bash", "-c", `test -d "$1" || { echo "agent.skills_path: there is no folder $1 in the sandbox" >&2; exit 1; }; mkdir -p "$2" && cp -R "$1"/. "$2"/`, "copy-skills", from, to}}}
}
