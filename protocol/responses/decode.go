package responses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

var errMissing = errors.New("missing")

// Decode reads a call. What it returns aliases body, so that what the harness
// wrote goes on as it is.
func (Protocol) Decode(_ *http.Request, body []byte) (llm.Request, error) {
	if err := rawjson.Valid(body); err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	d := decoder{}
	err := rawjson.EachMember(body, func(key string, value []byte) error {
		return openai.InField(key, d.read(key, value))
	})
	if err == nil {
		err = d.finish()
	}
	if err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	return d.req, nil
}

// decoder collects the fields of a request. Of a field that stands twice the
// last counts.
type decoder struct {
	req          llm.Request
	asked        asked
	instructions json.RawMessage
	input        json.RawMessage
	tools        json.RawMessage
	toolChoice   json.RawMessage
	topLogprobs  *int
}

// read takes one field in. Those that only OpenAI's own servers have a use for
// end here; unknown ones ride along.
func (d *decoder) read(key string, value []byte) (err error) {
	if isEchoed(key) && !rawjson.IsNull(value) {
		d.asked.echo.Set(key, bytes.Clone(value)) // so that an answer does not hold the body
	}
	if rawjson.IsNull(value) && isKnown(key) {
		return nil
	}
	r := &d.req
	switch key {
	case "model":
		r.Model, err = rawjson.String(value)
	case "instructions":
		d.instructions = value
	case "input":
		d.input = value
	case "tools":
		d.tools = value
	case "tool_choice":
		d.toolChoice = value
	case "parallel_tool_calls":
		_, err = openai.Bool(value)
		r.ParallelToolCalls = value
	case "stream":
		r.Stream, err = openai.Bool(value)
	case "previous_response_id":
		r.Previous, err = parsePrevious(value)
	case "max_output_tokens":
		r.Sampling.MaxTokens, err = openai.Positive(value)
	case "top_logprobs":
		d.topLogprobs, err = openai.TopLogprobs(value)
	case "include":
		err = d.include(value)
	case "text":
		err = d.text(value)
	case "reasoning":
		err = d.reasoning(value)
	case "background":
		var background bool
		if background, err = openai.Bool(value); err == nil && background {
			err = errors.New("answers are made while the caller waits; leave it out or send false")
		}
	case "conversation":
		err = errors.New("conversations are not stored; send the items in input, or previous_response_id")
	case "prompt":
		err = errors.New("prompt templates are not stored; send the text in instructions and input")
	default:
		if isOpenAIs(key) {
			return nil
		}
		known, err := openai.Sampling(&r.Sampling, key, value)
		if !known {
			r.Extra = append(r.Extra, rawjson.Member{Key: key, Value: value})
		}
		return err
	}
	return err
}

// isKnown reports whether null means that the field is absent. Of a field that
// is not known here null may mean something.
func isKnown(key string) bool {
	switch key {
	case "model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls", "stream",
		"previous_response_id", "max_output_tokens", "top_logprobs", "include", "text", "reasoning",
		"background", "conversation", "prompt",
		"temperature", "top_p", "top_k", "seed", "stop", "chat_template_kwargs":
		return true
	}
	return isOpenAIs(key)
}

// isOpenAIs reports fields about OpenAI's storage, billing and caches, and
// those that would change what an engine returns.
func isOpenAIs(key string) bool {
	switch key {
	case "store", "metadata", "user", "safety_identifier", "service_tier", "truncation", "max_tool_calls",
		"prompt_cache_key", "prompt_cache_retention", "stream_options", "client_metadata", "context_management",
		"generate", "return_token_ids", "return_tokens_as_token_ids", "messages", "logprobs", "n":
		return true
	}
	return false
}

// isEchoed reports the settings that a response repeats.
func isEchoed(key string) bool {
	for _, e := range echoed {
		if e.Key == key {
			return true
		}
	}
	return false
}

func (d *decoder) finish() error {
	var tools toolset
	if d.tools != nil {
		if err := tools.addAll("tools", "", "", d.tools); err != nil {
			return err
		}
	}
	c := conversation{tools: &tools}
	if d.instructions != nil {
		if err := c.instruct(d.instructions); err != nil {
			return err
		}
	}
	if err := c.read(d.input); err != nil {
		return err
	}
	r := &d.req
	r.Messages = c.finish()
	if len(r.Messages) == 0 && r.Previous == "" {
		return &llm.FieldError{Field: "input", Err: errors.New("a string or at least one item expected")}
	}
	choice, err := tools.choose(d.toolChoice)
	if err != nil {
		return openai.InField("tool_choice", err)
	}
	if r.Tools = tools.chat(); len(r.Tools) == 0 {
		// An empty list is an error for the engine, and so is a choice among none.
		r.ParallelToolCalls = nil
	} else {
		r.ToolChoice = choice
	}
	if d.asked.logprobs || d.topLogprobs != nil {
		if d.topLogprobs == nil {
			d.topLogprobs = new(int)
		}
		d.asked.logprobs = true
		r.TopLogprobs = d.topLogprobs
	}
	d.asked.model, d.asked.tools, d.asked.ignored = r.Model, tools.byFunction(), tools.ignored
	r.Reply = d.asked
	return nil
}

// parsePrevious finds the answer that a response id names.
func parsePrevious(value []byte) (string, error) {
	id, err := rawjson.String(value)
	if err != nil {
		return "", err
	}
	answer, ours := strings.CutPrefix(id, responsePrefix)
	if !ours || answer == "" {
		return "", fmt.Errorf("%q is no id of a response", id)
	}
	return answer, nil
}

// include reads what the harness wants to see besides. What is about tools that
// OpenAI runs has nothing to show.
func (d *decoder) include(value []byte) error {
	wanted, err := openai.Strings("include", value)
	for _, w := range wanted {
		switch w {
		case "reasoning.encrypted_content":
			d.asked.encrypted = true
		case "message.output_text.logprobs":
			d.asked.logprobs = true
		}
	}
	return err
}

// text reads the format of the answer. Its schema stays as it was written.
func (d *decoder) text(value []byte) error {
	d.req.ResponseFormat = nil
	return rawjson.EachMember(value, func(key string, value []byte) error {
		if key != "format" || rawjson.IsNull(value) {
			return nil
		}
		format, err := rawjson.ParseObject(value)
		if err != nil {
			return &llm.FieldError{Field: "text.format", Err: err}
		}
		typ, err := rawjson.String(format.Get("type"))
		if err != nil {
			return &llm.FieldError{Field: "text.format.type", Err: err}
		}
		switch typ {
		case "text":
			d.req.ResponseFormat = nil
		case "json_schema":
			format.Delete("type")
			d.req.ResponseFormat = append(format.Append([]byte(`{"type":"json_schema","json_schema":`)), '}')
		default:
			d.req.ResponseFormat = value
		}
		return nil
	})
}

// reasoning passes on how much the model is to think, to engines whose template
// knows it.
func (d *decoder) reasoning(value []byte) error {
	return rawjson.EachMember(value, func(key string, value []byte) error {
		if key != "effort" || rawjson.IsNull(value) {
			return nil
		}
		effort, err := rawjson.String(value)
		if err != nil {
			return &llm.FieldError{Field: "reasoning.effort", Err: err}
		}
		switch effort { // engines have the three steps that all models know
		case "minimal":
			value = json.RawMessage(`"low"`)
		case "xhigh", "max":
			value = json.RawMessage(`"high"`)
		}
		d.req.Extra.Set("reasoning_effort", value)
		return nil
	})
}
