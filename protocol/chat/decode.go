package chat

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// Decode reads a call. What it returns aliases body, so that what the harness
// wrote goes on as it is.
func (Protocol) Decode(_ *http.Request, body []byte) (llm.Request, error) {
	if err := rawjson.Valid(body); err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	d := decoder{}
	if err := rawjson.EachMember(body, d.member); err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	return d.finish()
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
	return openai.InField(key, d.read(key, value))
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
		r.Stream, err = openai.Bool(value)
	case "stream_options":
		err = rawjson.EachMember(value, func(key string, value []byte) (err error) {
			if key == "include_usage" && !rawjson.IsNull(value) {
				d.usage, err = openai.Bool(value)
			}
			return openai.InField("stream_options."+key, err)
		})
	case "n":
		n, err := rawjson.Int(value)
		if err == nil && n != 1 {
			err = fmt.Errorf("is %d, must be 1: each call is one sample", n)
		}
		return err
	case "logprobs":
		d.logprobs, err = openai.Bool(value)
	case "top_logprobs":
		d.topLogprobs, err = openai.TopLogprobs(value)
	case "functions", "function_call":
		return errors.New("went out of use: declare tools, and choose with tool_choice")
	case "return_token_ids", "return_tokens_as_token_ids":
		// What is recorded is not the harness's to say.
	case "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier":
		// They are OpenAI's own business.
	default:
		return d.readSampling(key, value)
	}
	return err
}

func (d *decoder) readSampling(key string, value []byte) (err error) {
	s := &d.req.Sampling
	switch key {
	case "max_tokens":
		s.MaxTokens, err = openai.Positive(value)
	case "max_completion_tokens":
		d.completionTokens, err = openai.Positive(value)
	default:
		known, err := openai.Sampling(s, key, value)
		if !known {
			d.req.Extra = append(d.req.Extra, rawjson.Member{Key: key, Value: value})
		}
		return err
	}
	return err
}

// isKnown reports whether null means that the field is absent. Of a field that
// is not known here null may mean something.
func isKnown(key string) bool {
	switch key {
	case "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format",
		"functions", "function_call", "stream", "stream_options", "n", "logprobs", "top_logprobs", "return_token_ids", "return_tokens_as_token_ids",
		"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop", "chat_template_kwargs":
		return true
	}
	return false
}

func (d *decoder) finish() (llm.Request, error) {
	r := &d.req
	if !d.messages || len(r.Messages) == 0 {
		return llm.Request{}, llm.InvalidRequest(&llm.FieldError{Field: "messages", Err: errors.New("at least one message expected")})
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

func parseMessages(data []byte) ([]llm.Message, error) {
	var out []llm.Message
	err := rawjson.EachElement(data, func(value []byte) error {
		at := fmt.Sprintf("messages[%d]", len(out))
		if value[0] != '{' {
			return &llm.FieldError{Field: at, Err: fmt.Errorf("an object expected, got %s", rawjson.Kind(value))}
		}
		m, err := llm.ParseMessage(value)
		if err != nil {
			// The parser begins its errors with the field's name.
			if field, said, ok := strings.Cut(err.Error(), ": "); ok && !strings.Contains(field, " ") {
				return &llm.FieldError{Field: at + "." + field, Err: errors.New(said)}
			}
			return &llm.FieldError{Field: at, Err: err}
		}
		if m.Extra.Get("function_call") != nil && !rawjson.IsNull(m.Extra.Get("function_call")) {
			// An engine would leave it out of the prompt.
			return &llm.FieldError{Field: at + ".function_call", Err: errors.New("went out of use: send tool_calls")}
		}
		out = append(out, m)
		return nil
	})
	return out, err
}
