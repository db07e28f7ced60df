package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"polar/rawjson"
)

// anyCall stands for the name of a tool where any must be called.
const anyCall = "*"

// constrain makes an answer what the request allows, as guided decoding does.
func (c conversation) constrain(a *answer) {
	switch {
	case c.toolsOff:
		a.calls = nil
	case c.mustCall != "":
		if c.mustCall != anyCall {
			a.calls = slices.DeleteFunc(a.calls, func(call call) bool { return call.name != c.mustCall })
		}
		if len(a.calls) == 0 {
			a.calls = []call{c.someCall()}
		}
		a.text = ""
	}
	if c.oneCall && len(a.calls) > 1 {
		a.calls = a.calls[:1]
	}
	if c.schema != nil && len(a.calls) == 0 {
		a.text = string(instance(c.schema))
	}
}

// someCall calls the tool that must be called with the least it takes.
func (c conversation) someCall() call {
	for _, t := range toolsOf(c.tools) {
		if c.mustCall == anyCall || c.mustCall == t.name {
			return call{name: t.name, arguments: string(instance(t.schema))}
		}
	}
	return call{name: c.mustCall, arguments: "{}"}
}

// toolChoice reads tool_choice into the conversation.
func (c *conversation) toolChoice(value []byte) error {
	if word, err := rawjson.String(value); err == nil {
		switch word {
		case "auto":
		case "none":
			c.toolsOff = true
		case "required":
			c.mustCall = anyCall
		default:
			return fmt.Errorf("is %q, must be auto, none, required or a tool", word)
		}
		return nil
	}
	choice, err := rawjson.ParseObject(value)
	if err != nil {
		return err
	}
	function, err := rawjson.ParseObject(choice.Get("function"))
	if err == nil {
		c.mustCall, err = rawjson.String(function.Get("name"))
	}
	if err != nil {
		return fmt.Errorf("function.name: %w", err)
	}
	return nil
}

// checkChoice reports a tool that must be called and is not on offer.
func (c conversation) checkChoice() error {
	switch {
	case c.mustCall == "":
		return nil
	case len(c.tools) == 0:
		return badRequest("tool_choice", "tool_choice: `tools` must be set to use it")
	case c.mustCall != anyCall && !slices.ContainsFunc(toolsOf(c.tools), func(t tool) bool { return t.name == c.mustCall }):
		return badRequest("tool_choice", "tool_choice: the tool %q is not in `tools`", c.mustCall)
	}
	return nil
}

// responseFormat reads response_format into the conversation.
func (c *conversation) responseFormat(value []byte) error {
	format, err := rawjson.ParseObject(value)
	if err != nil {
		return err
	}
	switch kind, _ := rawjson.String(format.Get("type")); kind {
	case "text":
		return nil
	case "json_object":
		c.schema = json.RawMessage(`{"type":"object"}`)
		return nil
	case "json_schema":
		inner, err := rawjson.ParseObject(format.Get("json_schema"))
		if err != nil {
			return fmt.Errorf("json_schema: %w", err)
		}
		if c.schema = inner.Get("schema"); c.schema == nil {
			return fmt.Errorf("json_schema.schema: missing")
		}
		return nil
	default:
		return fmt.Errorf("type: is %q, must be text, json_object or json_schema", kind)
	}
}

// instance is the least that a JSON schema allows.
func instance(schema json.RawMessage) json.RawMessage {
	return instances{root: schema}.of(schema, 0)
}

type instances struct{ root json.RawMessage }

// maxSchemaDepth ends schemas that refer to themselves.
const maxSchemaDepth = 32

func (in instances) of(schema json.RawMessage, depth int) json.RawMessage {
	o, err := rawjson.ParseObject(schema)
	if err != nil || depth > maxSchemaDepth {
		return json.RawMessage("null")
	}
	if v := o.Get("const"); v != nil {
		return v
	}
	if values, err := rawjson.ParseArray(o.Get("enum")); err == nil && len(values) > 0 {
		return values[0]
	}
	if ref, err := rawjson.String(o.Get("$ref")); err == nil {
		return in.of(in.resolve(ref), depth+1)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if list, err := rawjson.ParseArray(o.Get(key)); err == nil && len(list) > 0 {
			return in.of(list[0], depth+1)
		}
	}
	switch kindOf(o) {
	case "object":
		return in.object(o, depth)
	case "array":
		return in.array(o, depth)
	case "string":
		n, _ := rawjson.Int(o.Get("minLength")) // none is 0
		return rawjson.Quote(strings.Repeat("x", min(max(n, 0), 1<<16)))
	case "integer", "number":
		if v := o.Get("minimum"); v != nil {
			return v
		}
		return json.RawMessage("0")
	case "boolean":
		return json.RawMessage("false")
	}
	return json.RawMessage("null")
}

// kindOf is the type a schema asks for, the first of several; what it says of
// members or elements tells it too.
func kindOf(o rawjson.Object) string {
	kind := o.Get("type")
	if list, err := rawjson.ParseArray(kind); err == nil && len(list) > 0 {
		kind = list[0]
	}
	if name, err := rawjson.String(kind); err == nil {
		return strings.ToLower(name)
	}
	switch {
	case o.Get("properties") != nil:
		return "object"
	case o.Get("items") != nil:
		return "array"
	}
	return ""
}

func (in instances) object(o rawjson.Object, depth int) json.RawMessage {
	properties, _ := rawjson.ParseObject(o.Get("properties")) // none is an empty object
	out := []byte{'{'}
	_ = rawjson.EachElement(o.Get("required"), func(value []byte) error {
		name, err := rawjson.String(value)
		if err != nil {
			return err
		}
		if len(out) > 1 {
			out = append(out, ", "...)
		}
		out = append(rawjson.AppendString(out, name), ": "...)
		out = append(out, in.of(properties.Get(name), depth+1)...)
		return nil
	})
	return append(out, '}')
}

func (in instances) array(o rawjson.Object, depth int) json.RawMessage {
	n, _ := rawjson.Int(o.Get("minItems")) // none is 0
	out := []byte{'['}
	for i := range min(max(n, 0), 64) {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, in.of(o.Get("items"), depth+1)...)
	}
	return append(out, ']')
}

// resolve follows a reference within the schema.
func (in instances) resolve(ref string) json.RawMessage {
	at := in.root
	for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#"), "/") {
		if step == "" {
			continue
		}
		o, err := rawjson.ParseObject(at)
		if err != nil {
			return nil
		}
		at = o.Get(step)
	}
	return at
}
