package responses

import (
	"encoding/json"

	"polar/rawjson"
)

// builtin is a tool that OpenAI defines and the harness runs. The model knows
// it as a function with the name of the tool's type; its call is an item of its
// own kind, in which the arguments are an object under a name.
type builtin struct {
	item, prefix string
	// member is where the item has the arguments, and required the one of them
	// without which the item would be malformed.
	member, required string
	description      string
	parameters       string
}

func builtinOf(typ string) (builtin, bool) {
	switch typ {
	case "local_shell":
		return builtin{
			item: "local_shell_call", prefix: "lsh", member: "action", required: "command",
			description: "Runs a command on the user's machine and returns its output.",
			parameters: `{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments."},` +
				`"working_directory":{"type":"string","description":"Where to run it."},"timeout_ms":{"type":"integer","description":"How long it may run, in milliseconds."},` +
				`"env":{"type":"object","additionalProperties":{"type":"string"},"description":"Environment variables to set."}},"required":["command"],"additionalProperties":false}`,
		}, true
	case "shell":
		return builtin{
			item: "shell_call", prefix: "sh", member: "action", required: "commands",
			description: "Runs shell commands on the user's machine and returns their output.",
			parameters: `{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"},"description":"The commands, run one after the other."},` +
				`"timeout_ms":{"type":"integer","description":"How long they may run, in milliseconds."},"max_output_length":{"type":"integer","description":"How many characters of output to return."}},` +
				`"required":["commands"],"additionalProperties":false}`,
		}, true
	case "apply_patch":
		return builtin{
			item: "apply_patch_call", prefix: "apc", member: "operation", required: "type",
			description: "Creates, updates or deletes one file.",
			parameters: `{"type":"object","properties":{"type":{"type":"string","enum":["create_file","update_file","delete_file"]},"path":{"type":"string","description":"The file."},` +
				`"diff":{"type":"string","description":"The change as a V4A diff; not for delete_file."}},"required":["type","path"],"additionalProperties":false}`,
		}, true
	case "tool_search":
		return builtin{
			item: "tool_search_call", prefix: "tsc", member: "arguments",
			description: "Searches for tools that were not given up front.",
			parameters:  `{"type":"object","properties":{"query":{"type":"string","description":"What to search for."}},"required":["query"]}`,
		}, true
	}
	return builtin{}, false
}

// builtinOfItem finds the tool whose call has this type of item.
func builtinOfItem(item string) (name string, b builtin, ok bool) {
	for _, name := range []string{"local_shell", "shell", "apply_patch", "tool_search"} {
		if b, _ := builtinOf(name); b.item == item {
			return name, b, true
		}
	}
	return "", builtin{}, false
}

// runsAtHarness tells a tool that the harness runs from one of the same type
// that only OpenAI's own machines can.
func (b builtin) runsAtHarness(o offer) bool {
	switch o.typ {
	case "tool_search":
		where, _ := rawjson.String(o.execution)
		return where == "client"
	case "shell":
		env, _ := rawjson.ParseObject(o.environment)
		where, _ := rawjson.String(env.Get("type"))
		return where == "" || where == "local"
	}
	return true
}

// wrap makes of the model's arguments what the item has, and reports whether
// they are fit for that.
func (b builtin) wrap(arguments string) (json.RawMessage, bool) {
	if rawjson.Valid([]byte(arguments)) != nil {
		return nil, false
	}
	args, err := rawjson.ParseObject([]byte(arguments))
	if err != nil || b.required != "" && rawjson.IsNull(args.Get(b.required)) {
		return nil, false
	}
	if b.item != "local_shell_call" {
		return json.RawMessage(arguments), true
	}
	if rawjson.Kind(args.Get(b.required)) != "an array" {
		return nil, false
	}
	args.Delete("type")
	action := append(rawjson.Object{{Key: "type", Value: json.RawMessage(`"exec"`)}}, args...)
	if args.Get("env") == nil {
		action.Set("env", json.RawMessage("{}"))
	}
	return action.Append(nil), true
}

// unwrap undoes wrap, as far as the item says what the model wrote: clients put
// a null for what was not there.
func (b builtin) unwrap(value json.RawMessage) string {
	args, err := rawjson.ParseObject(value)
	if err != nil {
		return string(value)
	}
	before := len(args)
	if b.item == "local_shell_call" {
		args.Delete("type")
		if string(args.Get("env")) == "{}" {
			args.Delete("env")
		}
	}
	kept := args[:0]
	for _, m := range args {
		if !rawjson.IsNull(m.Value) {
			kept = append(kept, m)
		}
	}
	if len(kept) == before {
		return string(value)
	}
	return string(kept.Append(nil))
}
