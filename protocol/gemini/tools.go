package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"polar/rawjson"
)

// tool is the declaration of a function, each field as it is written.
type tool struct {
	name                            string
	rawName, description, parameter json.RawMessage
}

// parseTools reads the functions that are declared. All other tools run at
// Google, which a model here cannot reach.
func parseTools(at string, value []byte) ([]tool, error) {
	var tools []tool
	err := eachOf(at, value, func(at string, value []byte) error {
		return eachField(at, value, func(at, key string, value []byte) error {
			if key != "functionDeclarations" {
				return fmt.Errorf("the tool %s runs at Google and is not to be had here", key)
			}
			return eachOf(at, value, func(at string, value []byte) error {
				t, err := parseDeclaration(at, value)
				tools = append(tools, t)
				return err
			})
		})
	})
	return tools, err
}

func parseDeclaration(at string, value []byte) (tool, error) {
	var t tool
	err := eachField(at, value, func(_, key string, value []byte) (err error) {
		switch key {
		case "name":
			t.rawName = value
			t.name, err = rawjson.String(value)
		case "description":
			t.description = value
			_, err = rawjson.String(value)
		case "parameters", "parametersJsonSchema":
			t.parameter = jsonSchema(value)
		}
		return err
	})
	if err == nil && t.name == "" {
		err = inField(at+".name", errors.New("missing"))
	}
	return t, err
}

// json is the tool as Chat has it.
func (t tool) json() json.RawMessage {
	b := append([]byte(`{"type":"function","function":{"name":`), t.rawName...)
	if t.description != nil {
		b = append(append(b, `,"description":`...), t.description...)
	}
	if t.parameter != nil {
		b = append(append(b, `,"parameters":`...), t.parameter...)
	}
	return append(b, "}}"...)
}

// choice says which functions an answer may or must call.
type choice struct {
	at    string
	mode  string
	names []string
}

func parseToolConfig(at string, value []byte) (choice, error) {
	var c choice
	err := eachField(at, value, func(at, key string, value []byte) error {
		if key != "functionCallingConfig" {
			return nil // about tools that run at Google
		}
		c.at = at
		return eachField(at, value, func(at, key string, value []byte) (err error) {
			switch key {
			case "mode":
				c.mode, err = rawjson.String(value)
			case "allowedFunctionNames":
				err = eachOf(at, value, func(_ string, value []byte) error {
					name, err := rawjson.String(value)
					c.names = append(c.names, name)
					return err
				})
			}
			return err
		})
	})
	switch c.mode {
	case "", "MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED":
	default:
		err = inField(c.at+".mode", unknownWord(c.mode, "AUTO", "ANY", "NONE", "VALIDATED"))
	}
	return c, err
}

// among leaves the tools that may be called. No engine knows of an allowed few,
// so that the others are not shown; one alone is Chat's to demand.
func (c choice) among(tools []tool) ([]tool, error) {
	if c.mode != "ANY" && c.mode != "VALIDATED" {
		return tools, nil
	}
	for i, name := range c.names {
		if !slices.ContainsFunc(tools, func(t tool) bool { return t.name == name }) {
			return nil, inField(fmt.Sprintf("%s.allowedFunctionNames[%d]", c.at, i), fmt.Errorf("no function %q is declared", name))
		}
	}
	if len(c.names) == 0 || c.mode == "ANY" && len(c.names) == 1 {
		return tools, nil
	}
	return slices.DeleteFunc(slices.Clone(tools), func(t tool) bool { return !slices.Contains(c.names, t.name) }), nil
}

// json is Chat's tool_choice, or nil.
func (c choice) json() json.RawMessage {
	switch c.mode {
	case "AUTO", "VALIDATED":
		return json.RawMessage(`"auto"`)
	case "NONE":
		return json.RawMessage(`"none"`)
	case "ANY":
		if len(c.names) == 1 {
			b := rawjson.AppendString([]byte(`{"type":"function","function":{"name":`), c.names[0])
			return append(b, "}}"...)
		}
		return json.RawMessage(`"required"`)
	}
	return nil
}

// typeNames are the types of Google's own dialect of schemas.
var typeNames = [][]byte{
	[]byte(`"OBJECT"`), []byte(`"STRING"`), []byte(`"INTEGER"`), []byte(`"NUMBER"`),
	[]byte(`"BOOLEAN"`), []byte(`"ARRAY"`), []byte(`"NULL"`),
}

// jsonSchema is a schema with its types written as JSON Schema writes them, in
// lower case: engines refuse others. No other byte is changed.
func jsonSchema(schema []byte) json.RawMessage {
	if !slices.ContainsFunc(typeNames, func(name []byte) bool { return bytes.Contains(schema, name) }) {
		return schema
	}
	schema = bytes.Clone(schema)
	lowerTypes(schema)
	return schema
}

// lowerTypes changes a schema where it stands. It looks for schemas only where
// there are some: what a default or an enum holds is not one.
func lowerTypes(schema []byte) {
	switch schema[0] {
	case '[':
		_ = rawjson.EachElement(schema, func(value []byte) error { // it is well-formed
			lowerTypes(value)
			return nil
		})
		return
	case '{':
	default:
		return
	}
	_ = rawjson.EachMember(schema, func(key string, value []byte) error {
		switch key {
		case "type":
			lowerNames(value)
		case "properties", "patternProperties", "$defs", "defs", "definitions", "dependentSchemas":
			if value[0] != '{' {
				return nil
			}
			return rawjson.EachMember(value, func(_ string, value []byte) error {
				lowerTypes(value)
				return nil
			})
		case "items", "prefixItems", "additionalProperties", "additionalItems", "contains", "unevaluatedItems", "unevaluatedProperties",
			"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "propertyNames":
			lowerTypes(value)
		}
		return nil
	})
}

// lowerNames changes the value of "type", which is a name or a list of them.
func lowerNames(value []byte) {
	if value[0] == '[' {
		_ = rawjson.EachElement(value, func(value []byte) error {
			lowerNames(value)
			return nil
		})
		return
	}
	if slices.ContainsFunc(typeNames, func(name []byte) bool { return bytes.Equal(value, name) }) {
		copy(value, bytes.ToLower(value))
	}
}
