package sim

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"polar/rawjson"
)

// tool is what policies need to know of a tool on offer.
type tool struct {
	name   string
	schema json.RawMessage // of its parameters
}

// toolsOf reads the tools of a request; one without a name is passed over.
func toolsOf(raw []json.RawMessage) []tool {
	var tools []tool
	for _, data := range raw {
		t, err := rawjson.ParseObject(data)
		if err != nil {
			continue
		}
		f, err := rawjson.ParseObject(t.Get("function"))
		if err != nil {
			continue
		}
		if name, err := rawjson.String(f.Get("name")); err == nil {
			tools = append(tools, tool{name: name, schema: f.Get("parameters")})
		}
	}
	return tools
}

func anyTool(tools []tool, name *regexp.Regexp) bool {
	return slices.ContainsFunc(tools, func(t tool) bool { return name.MatchString(t.name) })
}

// shellTool is the tool that runs commands, as its schema wants to be called.
type shellTool struct {
	name      string
	parameter string
	asList    bool           // the command is a list of words
	required  rawjson.Object // what else must be there, with a value for each
}

// shellNames are the names that harnesses give to their shell, in lower case.
var shellNames = []string{
	"bash", "shell", "exec_command", "run_shell_command", "local_shell", "exec", "execute", "execute_command",
	"execute_bash", "run_command", "run_terminal_cmd", "terminal", "shell_command", "container.exec", "run",
}

var commandParameters = []string{"command", "cmd", "script", "commands"}

// findShell returns the tool that runs commands: one with a usual name, else
// one that cannot do without a command. A harness has other tools with a
// parameter of that name, such as one that starts a sub-agent.
func findShell(tools []tool) *shellTool {
	var byParameter *shellTool
	best, bestRank := (*shellTool)(nil), len(shellNames)
	for _, t := range tools {
		s, required := shellOf(t)
		if s == nil {
			continue
		}
		if rank := slices.Index(shellNames, strings.ToLower(t.name)); rank >= 0 && rank < bestRank {
			best, bestRank = s, rank
		}
		if byParameter == nil && required {
			byParameter = s
		}
	}
	if best != nil {
		return best
	}
	return byParameter
}

// shellOf reads a tool as a shell, if it has a parameter for a command, and
// says whether that parameter is required.
func shellOf(t tool) (s *shellTool, required bool) {
	schema, err := rawjson.ParseObject(t.schema)
	if err != nil {
		return nil, false
	}
	properties, err := rawjson.ParseObject(schema.Get("properties"))
	if err != nil {
		return nil, false
	}
	for _, name := range commandParameters {
		switch typeOf(properties.Get(name)) {
		case "string":
			s = &shellTool{name: t.name, parameter: name}
		case "array":
			s = &shellTool{name: t.name, parameter: name, asList: true}
		}
		if s != nil {
			break
		}
	}
	if s == nil {
		return nil, false
	}
	_ = rawjson.EachElement(schema.Get("required"), func(value []byte) error {
		name, err := rawjson.String(value)
		if name == s.parameter {
			required = true
		} else if err == nil {
			s.required.Set(name, someValue(properties.Get(name)))
		}
		return err
	})
	return s, required
}

// typeOf is the JSON type that a property's schema asks for; Gemini writes it
// in capitals.
func typeOf(property json.RawMessage) string {
	o, err := rawjson.ParseObject(property)
	if err != nil {
		return ""
	}
	kind, _ := rawjson.String(o.Get("type"))
	return strings.ToLower(kind)
}

// someValue is a harmless value for a required parameter.
func someValue(property json.RawMessage) json.RawMessage {
	o, _ := rawjson.ParseObject(property)
	if v := o.Get("default"); v != nil {
		return v
	}
	if values, err := rawjson.ParseArray(o.Get("enum")); err == nil && len(values) > 0 {
		return values[0]
	}
	switch typeOf(property) {
	case "boolean":
		return json.RawMessage("false")
	case "number", "integer":
		if v := o.Get("minimum"); v != nil {
			return v
		}
		return json.RawMessage("0")
	case "array":
		return json.RawMessage("[]")
	case "object":
		return json.RawMessage("{}")
	}
	return json.RawMessage(`"Work on the task"`)
}

// call writes a call of the tool that runs command, spaced as models write
// JSON.
func (s *shellTool) call(command string) call {
	b := append(rawjson.AppendString([]byte{'{'}, s.parameter), ": "...)
	if s.asList {
		b = append(b, `["bash", "-lc", `...)
	}
	b = rawjson.AppendString(b, command)
	if s.asList {
		b = append(b, ']')
	}
	for _, m := range s.required {
		b = append(rawjson.AppendString(append(b, ", "...), m.Key), ": "...)
		b = append(b, m.Value...)
	}
	return call{name: s.name, arguments: string(append(b, '}'))}
}
