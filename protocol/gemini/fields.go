package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// inField puts the blame for err on a field, unless one has it already.
func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	if _, named := errors.AsType[*llm.FieldError](err); named {
		return err
	}
	return &llm.FieldError{Field: field, Err: err}
}

// eachField calls f with each field of a message of the format that is not
// null, its name in camel case. at is the path of the message.
func eachField(at string, message []byte, f func(at, key string, value []byte) error) error {
	if message[0] != '{' {
		return inField(at, fmt.Errorf("an object expected, got %s", rawjson.Kind(message)))
	}
	return rawjson.EachMember(message, func(key string, value []byte) error {
		if rawjson.IsNull(value) {
			return nil
		}
		path := key
		if at != "" {
			path = at + "." + key
		}
		return inField(path, f(path, camel(key), value))
	})
}

// eachOf calls f with each element of a list that is not null. One that stands
// alone is a list too, as it is for Google.
func eachOf(at string, list []byte, f func(at string, value []byte) error) error {
	if list[0] != '[' {
		return inField(at, f(at, list))
	}
	i := 0
	return rawjson.EachElement(list, func(value []byte) error {
		path := fmt.Sprintf("%s[%d]", at, i)
		i++
		if rawjson.IsNull(value) {
			return nil
		}
		return inField(path, f(path, value))
	})
}

// camel is the name of a field as the format's documents write it. The name
// with underscores that its protocol buffers have is as good.
func camel(key string) string {
	head, rest, found := strings.Cut(key, "_")
	for found && rest != "" {
		var word string
		word, rest, found = strings.Cut(rest, "_")
		if word != "" {
			head += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return head
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

// parseInt reads an integer in every way protocol buffers write one: 64, 64.0
// and "64".
func parseInt(value []byte) (*int64, error) {
	number := value
	if s, err := rawjson.String(value); err == nil {
		number = []byte(s)
	}
	var n int64
	if json.Unmarshal(number, &n) == nil && !rawjson.IsNull(number) {
		return &n, nil
	}
	if f, err := rawjson.Float(number); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		n = int64(f)
		return &n, nil
	}
	return nil, fmt.Errorf("an integer expected, got %s", rawjson.Kind(value))
}

// parseWithin is parseInt for what has bounds.
func parseWithin(value []byte, least, most int64) (*int, error) {
	n, err := parseInt(value)
	switch {
	case err != nil:
		return nil, err
	case *n < least && most == math.MaxInt32:
		return nil, fmt.Errorf("is %d, must be at least %d", *n, least)
	case *n < least || *n > most:
		return nil, fmt.Errorf("is %d, must be from %d to %d", *n, least, most)
	}
	small := int(*n)
	return &small, nil
}

func parseFloat(value []byte) (*float64, error) {
	f, err := rawjson.Float(value)
	return &f, err
}
