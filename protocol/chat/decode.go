package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// Decode reads a call. What it returns aliases body, so that what the harness
// wrote goes on as it is.
func (Protocol) Decode(_ *http.Request, body []byte) (llm.Request, error) {
	if err := rawjson.Valid(body); err != nil {
		return llm.Request{}, badRequest(err)
	}
	d := decoder{}
	if err := rawjson.EachMember(body, d.member); err != nil {
		return llm.Request{}, badRequest(err)
	}
	return d.finish()
}

// fieldError says which field is wrong.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

func badRequest(err error) *llm.Error {
	if f, ok := errors.AsType[*fieldError](err); ok {
		e := llm.Errorf(llm.BadRequest, "%v", f.err)
		e.Param = f.field
		return e
	}
	return llm.Errorf(llm.BadRequest, "%v", err)
}

// decoder collects the fields of a request. Of a field that stands twice the
// last counts.
type decoder struct {
	req              llm.Request
	messages         bool
	logprobs         bool
	topLogprobs      *int
	usage            bool
	completionTokens *int
}

func (d *decoder) member(key string, value []byte) error {
	if err := d.read(key, value); err != nil {
		if _, named := errors.AsType[*fieldError](err); named {
			return err
		}
		return &fieldError{field: key, err: err}
	}
	return nil
}

// read takes one field in. Those that are decided here, or that the harness
// could use to switch off what is recorded, end here; unknown ones ride along.
func (d *decoder) read(key string, value []byte) (err error) {
	r := &d.req
	if rawjson.IsNull(value) && isKnown(key) {
		return nil
	}
	switch key {
	case "model":
		r.Model, err = rawjson.String(value)
	case "messages":
		d.messages = true
		r.Messages, err = parseMessages(value)
	case "tools":
		r.Tools, err = rawjson.ParseArray(value)
	case "tool_choice":
		r.ToolChoice = value
	case "parallel_tool_calls":
		r.ParallelToolCalls = value
	case "response_format":
		r.ResponseFormat = value
	case "stream":
		r.Stream, err = parseBool(value)
	case "stream_options":
		err = rawjson.EachMember(value, func(key string, value []byte) (err error) {
			if key == "include_usage" && !rawjson.IsNull(value) {
				d.usage, err = parseBool(value)
			}
			return inField("stream_options."+key, err)
		})
	case "n":
		n, err := rawjson.Int(value)
		if err == nil && n != 1 {
			err = fmt.Errorf("is %d, must be 1: each call is one sample", n)
		}
		return err
	case "logprobs":
		d.logprobs, err = parseBool(value)
	case "top_logprobs":
		d.topLogprobs, err = parseInt(value)
		if top := d.topLogprobs; err == nil && (*top < 0 || *top > maxTopLogprobs) {
			err = fmt.Errorf("is %d, must be from 0 to %d", *top, maxTopLogprobs)
		}
	case "return_token_ids", "return_tokens_as_token_ids":
	default:
		return d.readSampling(key, value)
	}
	return err
}

func (d *decoder) readSampling(key string, value []byte) (err error) {
	s := &d.req.Sampling
	switch key {
	case "temperature":
		s.Temperature, err = parseFloat(value)
	case "top_p":
		s.TopP, err = parseFloat(value)
	case "top_k":
		s.TopK, err = parseInt(value)
	case "max_tokens":
		s.MaxTokens, err = parsePositive(value)
	case "max_completion_tokens":
		d.completionTokens, err = parsePositive(value)
	case "seed":
		var seed int64
		if err = json.Unmarshal(value, &seed); err != nil {
			return fmt.Errorf("an integer expected, got %s", rawjson.Kind(value))
		}
		s.Seed = &seed
	case "stop":
		s.Stop, err = parseStop(value)
	case "chat_template_kwargs":
		s.ChatTemplateKwargs, err = rawjson.ParseObject(value)
	default:
		d.req.Extra = append(d.req.Extra, rawjson.Member{Key: key, Value: value})
	}
	return err
}

// isKnown reports whether null means that the field is absent. Of a field that
// is not known here null may mean something.
func isKnown(key string) bool {
	switch key {
	case "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format",
		"stream", "stream_options", "n", "logprobs", "top_logprobs", "return_token_ids", "return_tokens_as_token_ids",
		"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop", "chat_template_kwargs":
		return true
	}
	return false
}

func (d *decoder) finish() (llm.Request, error) {
	r := &d.req
	if !d.messages || len(r.Messages) == 0 {
		return llm.Request{}, badRequest(&fieldError{"messages", errors.New("at least one message expected")})
	}
	if len(r.Tools) == 0 {
		// An empty list is an error for the engine, and so is a choice among none.
		r.Tools, r.ToolChoice, r.ParallelToolCalls = nil, nil, nil
	}
	if d.completionTokens != nil {
		r.Sampling.MaxTokens = d.completionTokens
	}
	if d.logprobs {
		if d.topLogprobs == nil {
			d.topLogprobs = new(int)
		}
		r.TopLogprobs = d.topLogprobs
	}
	r.Reply = asked{model: r.Model, usage: d.usage, logprobs: d.logprobs}
	return *r, nil
}

// maxTopLogprobs is OpenAI's own bound.
const maxTopLogprobs = 20

func parseMessages(data []byte) ([]llm.Message, error) {
	var out []llm.Message
	err := rawjson.EachElement(data, func(value []byte) error {
		at := fmt.Sprintf("messages[%d]", len(out))
		if value[0] != '{' {
			return &fieldError{at, fmt.Errorf("an object expected, got %s", rawjson.Kind(value))}
		}
		m, err := llm.ParseMessage(value)
		if err != nil {
			// The parser begins its errors with the field's name.
			if field, said, ok := strings.Cut(err.Error(), ": "); ok && !strings.Contains(field, " ") {
				return &fieldError{at + "." + field, errors.New(said)}
			}
			return &fieldError{at, err}
		}
		out = append(out, m)
		return nil
	})
	return out, err
}

func parseStop(value []byte) ([]string, error) {
	if value[0] == '"' {
		s, err := rawjson.String(value)
		return []string{s}, err
	}
	out := []string{}
	err := rawjson.EachElement(value, func(value []byte) error {
		s, err := rawjson.String(value)
		out = append(out, s)
		return inField(fmt.Sprintf("stop[%d]", len(out)-1), err)
	})
	return out, err
}

func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{field, err}
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
