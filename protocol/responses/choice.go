package responses

import (
	"encoding/json"
	"fmt"
	"strings"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// choose makes of a tool_choice what Chat Completions has. A choice that allows
// only some tools takes the others away.
func (s *toolset) choose(raw json.RawMessage) (json.RawMessage, error) {
	if rawjson.IsNull(raw) {
		return nil, nil
	}
	if raw[0] == '"' {
		return s.mode("tool_choice", raw)
	}
	if raw[0] != '{' {
		return nil, fmt.Errorf("a string or an object expected, got %s", rawjson.Kind(raw))
	}
	choice, err := rawjson.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	if typ, err := rawjson.String(choice.Get("type")); err != nil || typ != "allowed_tools" {
		name, err := s.chosen("tool_choice", choice)
		if err != nil {
			return nil, err
		}
		b := rawjson.AppendString([]byte(`{"type":"function","function":{"name":`), name)
		return append(b, "}}"...), nil
	}
	if list := choice.Get("allowed_tools"); !rawjson.IsNull(list) { // as Chat Completions nests it
		if choice, err = rawjson.ParseObject(list); err != nil {
			return nil, &llm.FieldError{Field: "tool_choice.allowed_tools", Err: err}
		}
	}
	mode := choice.Get("mode")
	if rawjson.IsNull(mode) {
		mode = json.RawMessage(`"auto"`)
	}
	names := map[string]bool{}
	i := 0
	err = rawjson.EachElement(orEmptyList(choice.Get("tools")), func(value []byte) error {
		at := fmt.Sprintf("tool_choice.tools[%d]", i)
		i++
		one, err := rawjson.ParseObject(value)
		if err != nil {
			return &llm.FieldError{Field: at, Err: err}
		}
		name, err := s.chosen(at, one)
		names[name] = true
		return err
	})
	if err != nil {
		return nil, openai.InField("tool_choice.tools", err)
	}
	s.keep(names)
	return s.mode("tool_choice.mode", mode)
}

// mode passes on how free the model is. It cannot be made to use a tool where
// there is none.
func (s *toolset) mode(at string, raw json.RawMessage) (json.RawMessage, error) {
	mode, err := rawjson.String(raw)
	if err != nil {
		return nil, &llm.FieldError{Field: at, Err: err}
	}
	switch mode {
	case "auto", "none":
		return raw, nil
	case "required":
		if len(s.tools) > 0 {
			return raw, nil
		}
		if len(s.ignored) > 0 {
			return nil, &llm.FieldError{Field: at, Err: fmt.Errorf("demands a tool, and none of those given can be run here: %s", strings.Join(s.ignored, ", "))}
		}
		return nil, &llm.FieldError{Field: at, Err: fmt.Errorf("demands a tool, and none is given")}
	}
	return nil, &llm.FieldError{Field: at, Err: fmt.Errorf("is %q, must be auto, none, required or a tool", mode)}
}

// chosen is the function that a choice names.
func (s *toolset) chosen(at string, choice rawjson.Object) (string, error) {
	typ, err := rawjson.String(choice.Get("type"))
	if err != nil {
		return "", &llm.FieldError{Field: at + ".type", Err: err}
	}
	name := typ
	switch typ {
	case "function", "custom":
		if nested, err := rawjson.ParseObject(choice.Get(typ)); err == nil { // as Chat Completions nests it
			choice = nested
		}
		if name, err = rawjson.String(choice.Get("name")); err != nil {
			return "", &llm.FieldError{Field: at + ".name", Err: err}
		}
		if namespace := choice.Get("namespace"); !rawjson.IsNull(namespace) {
			within, err := rawjson.String(namespace)
			if err != nil {
				return "", &llm.FieldError{Field: at + ".namespace", Err: err}
			}
			name = functionName(within, name)
		}
	default:
		if _, ok := builtinOf(typ); !ok {
			return "", &llm.FieldError{Field: at + ".type", Err: fmt.Errorf("%q is run by OpenAI and cannot be run here; choose a function", typ)}
		}
	}
	if _, ok := s.place[name]; !ok {
		return "", &llm.FieldError{Field: at, Err: fmt.Errorf("no tool named %q is given", name)}
	}
	return name, nil
}
