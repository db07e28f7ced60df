package polar

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"polar/rawjson"
)

// FieldError is bad input: which field, and what to do about it.
type FieldError struct {
	Field   string
	Message string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// Invalid makes a FieldError.
func Invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// DecodeStrict decodes JSON into v. A field v has no place for, or of another
// type, is a FieldError with the path to it.
func DecodeStrict(data []byte, v any) error {
	if err := rawjson.Valid(data); err != nil {
		return err
	}
	data = bytes.TrimSpace(data)
	if err := checkFields("", data, reflect.TypeOf(v)); err != nil {
		return err
	}
	err := json.Unmarshal(data, v)
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := mismatch.Field
		if field == "" {
			field = "body"
		}
		return Invalid(field, "%s given, %s expected", mismatch.Value, wireType(mismatch.Type))
	}
	return err
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// checkFields walks data along the type t and names the first field that t
// does not have. Types that read themselves are theirs to check.
func checkFields(path string, data []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler) || rawjson.IsNull(data) {
		return nil
	}
	switch t.Kind() { //nolint:exhaustive // the other kinds have no fields
	case reflect.Struct:
		if data[0] != '{' {
			return Invalid(orBody(path), "%s given, an object expected", rawjson.Kind(data))
		}
		fields := map[string]reflect.Type{}
		jsonFields(t, fields)
		return rawjson.EachMember(data, func(key string, value []byte) error {
			ft, ok := fields[key]
			if !ok {
				return Invalid(join(path, key), "unknown field")
			}
			return checkFields(join(path, key), value, ft)
		})
	case reflect.Slice:
		if data[0] != '[' {
			return Invalid(orBody(path), "%s given, a list expected", rawjson.Kind(data))
		}
		i := 0
		return rawjson.EachElement(data, func(value []byte) error {
			err := checkFields(fmt.Sprintf("%s[%d]", path, i), value, t.Elem())
			i++
			return err
		})
	case reflect.Map:
		if data[0] != '{' {
			return Invalid(orBody(path), "%s given, an object expected", rawjson.Kind(data))
		}
		return rawjson.EachMember(data, func(key string, value []byte) error {
			return checkFields(join(path, key), value, t.Elem())
		})
	}
	return nil
}

func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			jsonFields(f.Type, into)
		case name == "-" || !f.IsExported():
		case name == "":
			into[f.Name] = f.Type
		default:
			into[name] = f.Type
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func orBody(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

func wireType(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the rest are integers
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	}
	return "an integer"
}
