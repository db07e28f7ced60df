package anthropic

import (
	"errors"

	"polar/llm"
	"polar/rawjson"
)

// tool is one tool of a request. Its parts are as the harness wrote them.
type tool struct {
	name                        string
	quoted, description, schema []byte
	deferred                    bool
}

// toolbox is all tools of a request, those that are deferred too.
type toolbox []tool

func parseTools(list []byte) (toolbox, error) {
	if list == nil {
		return nil, nil
	}
	var box toolbox
	err := eachObject(list, func(o rawjson.Object) error {
		t, err := parseTool(o)
		box = append(box, t)
		return err
	})
	return box, err
}

// parseTool reads a tool that the harness itself runs. Those that have a type
// and no schema are known to the provider alone, and it runs most of them.
func parseTool(o rawjson.Object) (t tool, err error) {
	kind, err := stringOf(o, "type")
	if err != nil {
		return t, err
	}
	t.schema = o.Get("input_schema")
	if rawjson.IsNull(t.schema) {
		if kind != "" && kind != "custom" {
			return t, wrong("type", "%q is a tool that only the provider's own servers and models know: leave it out, or send a tool with a name and an input_schema", kind)
		}
		return t, wrong("input_schema", "missing")
	}
	if t.schema[0] != '{' {
		return t, wrong("input_schema", "an object expected, got %s", rawjson.Kind(t.schema))
	}
	if t.quoted, err = quotedOf(o, "name"); err != nil {
		return t, err
	}
	if t.name, err = rawjson.String(t.quoted); err != nil {
		return t, within("name", err)
	}
	if t.name == "" {
		return t, wrong("name", "missing")
	}
	if description := o.Get("description"); !rawjson.IsNull(description) {
		if t.description, err = quotedOf(o, "description"); err != nil {
			return t, err
		}
	}
	t.deferred, err = boolOf(o, "defer_loading")
	return t, err
}

// find returns the tool with a name, or nil.
func (b toolbox) find(name string) *tool {
	for i := range b {
		if b[i].name == name {
			return &b[i]
		}
	}
	return nil
}

// appendChat writes the tool as Chat has it.
func (t tool) appendChat(dst []byte) []byte {
	dst = append(dst, `{"type":"function","function":{"name":`...)
	dst = append(dst, t.quoted...)
	if t.description != nil {
		dst = append(dst, `,"description":`...)
		dst = append(dst, t.description...)
	}
	dst = append(dst, `,"parameters":`...)
	dst = append(dst, t.schema...)
	return append(dst, "}}"...)
}

// appendLoaded writes the tool as a line of the list that a search for tools
// is said to give.
func (t tool) appendLoaded(dst []byte) []byte {
	dst = append(dst, `<function>{`...)
	if t.description != nil {
		dst = append(dst, `"description": `...)
		dst = append(dst, t.description...)
		dst = append(dst, ", "...)
	}
	dst = append(dst, `"name": `...)
	dst = append(dst, t.quoted...)
	dst = append(dst, `, "parameters": `...)
	dst = append(dst, t.schema...)
	return append(dst, "}</function>\n"...)
}

// loaded is the text that stands for references to tools.
func (b toolbox) loaded(names []string) string {
	text := []byte("<functions>\n")
	for _, name := range names {
		if t := b.find(name); t != nil {
			text = t.appendLoaded(text)
			continue
		}
		text = append(text, `<function>{"name": `...)
		text = rawjson.AppendString(text, name)
		text = append(text, "}</function>\n"...)
	}
	return string(append(text, "</functions>"...))
}

// choice is which tool the model must call.
type choice struct {
	kind   string // auto, any, none, tool or ""
	name   string
	single bool
}

func parseChoice(value []byte) (c choice, err error) {
	if value == nil {
		return c, nil
	}
	o, err := parseObject(value)
	if err != nil {
		return c, err
	}
	if c.kind, err = stringOf(o, "type"); err != nil {
		return c, err
	}
	if c.single, err = boolOf(o, "disable_parallel_tool_use"); err != nil {
		return c, err
	}
	switch c.kind {
	case "auto", "any", "none":
		return c, nil
	case "tool":
		if c.name, err = stringOf(o, "name"); err == nil && c.name == "" {
			err = wrong("name", "missing")
		}
		return c, err
	}
	return c, wrong("type", "is %q, must be auto, any, none or tool", c.kind)
}

// setTools offers the tools to the model. One that is deferred is not offered,
// unless it is the one that must be called or there is no other.
func (d *decoder) setTools(box toolbox, c choice) error {
	if len(box) == 0 {
		return nil // there is no choice among none
	}
	if c.kind == "tool" && box.find(c.name) == nil {
		return &llm.FieldError{Field: "tool_choice.name", Err: errors.New("no tool has this name")}
	}
	all := true
	for _, t := range box {
		all = all && t.deferred
	}
	r := &d.req
	for _, t := range box {
		if all || !t.deferred || c.kind == "tool" && t.name == c.name {
			r.Tools = append(r.Tools, t.appendChat(nil))
		}
	}
	switch c.kind {
	case "auto", "none":
		r.ToolChoice = rawjson.Quote(c.kind)
	case "any":
		r.ToolChoice = rawjson.Quote("required")
	case "tool":
		b := append([]byte(nil), `{"type":"function","function":{"name":`...)
		r.ToolChoice = append(rawjson.AppendString(b, c.name), "}}"...)
	}
	if c.single {
		r.ParallelToolCalls = []byte("false")
	}
	return nil
}

// toolCall reads a call of a tool that the model made. The input goes on in the
// bytes of the harness.
func toolCall(block rawjson.Object) (c llm.ToolCall, err error) {
	if c.ID, err = stringOf(block, "id"); err != nil {
		return c, err
	}
	if c.Name, err = stringOf(block, "name"); err != nil {
		return c, err
	}
	if c.Name == "" {
		return c, wrong("name", "missing")
	}
	input := block.Get("input")
	switch {
	case rawjson.IsNull(input):
		c.Arguments = "{}"
	case input[0] != '{':
		return c, wrong("input", "an object expected, got %s", rawjson.Kind(input))
	default:
		c.Arguments = string(input)
	}
	return c, nil
}
