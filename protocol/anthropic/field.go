package anthropic

import (
	"errors"
	"fmt"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// within says that err is of a field, or of something inside it.
func within(field string, err error) error {
	if err == nil {
		return nil
	}
	inner, ok := errors.AsType[*llm.FieldError](err)
	switch {
	case !ok:
		return &llm.FieldError{Field: field, Err: err}
	case strings.HasPrefix(inner.Field, "["):
		return &llm.FieldError{Field: field + inner.Field, Err: inner.Err}
	}
	return &llm.FieldError{Field: field + "." + inner.Field, Err: inner.Err}
}

func wrong(field, format string, args ...any) error {
	return &llm.FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

// eachObject calls f with each object of a list and says in errors which it was.
func eachObject(list []byte, f func(rawjson.Object) error) error {
	if list[0] != '[' {
		return fmt.Errorf("a list expected, got %s", rawjson.Kind(list))
	}
	i := 0
	return rawjson.EachElement(list, func(value []byte) error {
		at := fmt.Sprintf("[%d]", i)
		i++
		o, err := parseObject(value)
		if err == nil {
			err = f(o)
		}
		return within(at, err)
	})
}

func parseObject(value []byte) (rawjson.Object, error) {
	if len(value) == 0 || value[0] != '{' {
		return nil, fmt.Errorf("an object expected, got %s", rawjson.Kind(value))
	}
	return rawjson.ParseObject(value)
}

// stringOf decodes a member that must be a string; absent it is "".
func stringOf(o rawjson.Object, key string) (string, error) {
	value := o.Get(key)
	if rawjson.IsNull(value) {
		return "", nil
	}
	s, err := rawjson.String(value)
	return s, within(key, err)
}

// quotedOf is a member that must be there and be a string, as it was written.
func quotedOf(o rawjson.Object, key string) ([]byte, error) {
	value := o.Get(key)
	switch {
	case rawjson.IsNull(value):
		return nil, wrong(key, "missing")
	case value[0] != '"':
		return nil, wrong(key, "a string expected, got %s", rawjson.Kind(value))
	}
	return value, nil
}

// boolOf decodes a member that must be a boolean; absent it is false.
func boolOf(o rawjson.Object, key string) (bool, error) {
	value := o.Get(key)
	if rawjson.IsNull(value) {
		return false, nil
	}
	b, err := parseBool(value)
	return b, within(key, err)
}

func parseBool(value []byte) (bool, error) {
	switch string(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("true or false expected, got %s", rawjson.Kind(value))
}

func parseInt(value []byte) (*int, error) {
	n, err := rawjson.Int(value)
	return &n, err
}

func parsePositive(value []byte) (*int, error) {
	n, err := parseInt(value)
	if err == nil && *n < 1 {
		err = fmt.Errorf("is %d, must be at least 1", *n)
	}
	return n, err
}

func parseFloat(value []byte) (*float64, error) {
	f, err := rawjson.Float(value)
	return &f, err
}

func parseStrings(value []byte) ([]string, error) {
	var out []string
	err := rawjson.EachElement(value, func(value []byte) error {
		s, err := rawjson.String(value)
		out = append(out, s)
		return within(fmt.Sprintf("[%d]", len(out)-1), err)
	})
	return out, err
}
