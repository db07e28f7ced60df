package harness

import (
	"errors"
	"testing"

	"polar"
)

func TestCheckMCP(t *testing.T) {
	t.Parallel()
	good := polar.MCPServer{Name: "notes", Transport: "stdio", Command: "notes"}
	for name, c := range map[string]struct {
		servers []polar.MCPServer
		field   string // that is refused
	}{
		"none":                         {},
		"each transport":               {servers: []polar.MCPServer{good, {Name: "a", Transport: "sse", URL: "http://a"}, {Name: "b", Transport: "streamable-http", URL: "http://b"}}},
		"no name":                      {[]polar.MCPServer{{Transport: "stdio", Command: "x"}}, "agent.mcp_servers[0].name"},
		"a name with a space":          {[]polar.MCPServer{{Name: "my notes", Transport: "stdio", Command: "x"}}, "agent.mcp_servers[0].name"},
		"a name twice":                 {[]polar.MCPServer{good, good}, "agent.mcp_servers[1].name"},
		"no transport":                 {[]polar.MCPServer{{Name: "a", Command: "x"}}, "agent.mcp_servers[0].transport"},
		"a transport nobody has":       {[]polar.MCPServer{{Name: "a", Transport: "smoke", URL: "x"}}, "agent.mcp_servers[0].transport"},
		"a process without a command":  {[]polar.MCPServer{{Name: "a", Transport: "stdio", URL: "http://a"}}, "agent.mcp_servers[0].command"},
		"a server without its address": {[]polar.MCPServer{good, {Name: "a", Transport: "sse", Command: "x"}}, "agent.mcp_servers[1].url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkMCP(c.servers)
			var bad *polar.FieldError
			switch {
			case c.field == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.field != "" && (!errors.As(err, &bad) || bad.Field != c.field):
				t.Errorf("error is %v, want one of %s", err, c.field)
			}
		})
	}
}
