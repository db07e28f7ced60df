package openai

import (
	"encoding/json"
	"errors"
	"fmt"

	"polar/llm"
	"polar/rawjson"
)

// MaxTopLogprobs is OpenAI's own bound on the alternatives of a token.
const MaxTopLogprobs = 20

// InField puts the blame for err on a field, unless one has it already. No
// error stays none.
func InField(field string, err error) error {
	if err == nil {
		return nil
	}
	if _, named := errors.AsType[*llm.FieldError](err); named {
		return err
	}
	return &llm.FieldError{Field: field, Err: err}
}

// Sampling reads the field key into s, if it is one of how an answer is
// sampled that all of OpenAI's formats, or the engines beside them, have under
// one name. It reports whether it is.
func Sampling(s *llm.Sampling, key string, value []byte) (ok bool, err error) {
	switch key {
	case "temperature":
		s.Temperature, err = Float(value)
	case "top_p":
		s.TopP, err = Float(value)
	case "top_k":
		s.TopK, err = Int(value)
	case "seed":
		var seed int64
		if json.Unmarshal(value, &seed) != nil {
			return true, fmt.Errorf("an integer expected, got %s", rawjson.Kind(value))
		}
		s.Seed = &seed
	case "stop":
		s.Stop, err = Strings(key, value)
	case "chat_template_kwargs":
		s.ChatTemplateKwargs, err = rawjson.ParseObject(value)
	default:
		return false, nil
	}
	return true, err
}

// Strings reads one string or a list of them.
func Strings(field string, value []byte) ([]string, error) {
	if value[0] == '"' {
		s, err := rawjson.String(value)
		return []string{s}, err
	}
	out := []string{}
	err := rawjson.EachElement(value, func(value []byte) error {
		s, err := rawjson.String(value)
		out = append(out, s)
		return InField(fmt.Sprintf("%s[%d]", field, len(out)-1), err)
	})
	return out, err
}

// Bool reads true or false.
func Bool(value []byte) (bool, error) {
	switch string(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("true or false expected, got %s", rawjson.Kind(value))
}

// Int reads an integer.
func Int(value []byte) (*int, error) {
	n, err := rawjson.Int(value)
	return &n, err
}

// Positive reads an integer of at least 1.
func Positive(value []byte) (*int, error) {
	n, err := Int(value)
	if err == nil && *n < 1 {
		err = fmt.Errorf("is %d, must be at least 1", *n)
	}
	return n, err
}

// TopLogprobs reads how many alternatives of a token are wanted.
func TopLogprobs(value []byte) (*int, error) {
	n, err := Int(value)
	if err == nil && (*n < 0 || *n > MaxTopLogprobs) {
		err = fmt.Errorf("is %d, must be from 0 to %d", *n, MaxTopLogprobs)
	}
	return n, err
}

// Float reads a number.
func Float(value []byte) (*float64, error) {
	f, err := rawjson.Float(value)
	return &f, err
}
