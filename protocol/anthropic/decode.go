package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"polar/llm"
	"polar/rawjson"
)

// Decode reads a call. What it returns does not alias body: the images of a
// request are written anew as Chat has them, and a body that was let go of is
// not in memory a second time.
func (Protocol) Decode(_ *http.Request, body []byte) (llm.Request, error) { return decode(body) }

func decode(body []byte) (llm.Request, error) {
	if err := rawjson.Valid(body); err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	var d decoder
	err := rawjson.EachMember(body, func(key string, value []byte) error {
		if rawjson.IsNull(value) && isKnown(key) {
			return nil
		}
		return within(key, d.read(key, value))
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
// last counts. What depends on other fields waits for the end.
type decoder struct {
	req                             llm.Request
	system, messages, tools, choice []byte
	// thinking is what the request says of it, nil if nothing or that the model
	// may decide.
	thinking *bool
	hidden   bool
}

// isKnown reports whether null means that the field is absent. Of a field that
// is not known here null may mean something.
func isKnown(key string) bool {
	switch key {
	case "model", "stream", "system", "messages", "tools", "tool_choice", "thinking", "output_config", "output_format", "mcp_servers",
		"max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "seed", "chat_template_kwargs":
		return true
	}
	return isDropped(key)
}

// isDropped knows the fields that only the provider can use, and those by which
// a harness could change what an engine returns for the record.
func isDropped(key string) bool {
	switch key {
	case "metadata", "service_tier", "inference_geo", "speed", "context_management", "cache_control", "container", "betas",
		"anthropic_beta", "anthropic_version",
		"n", "logprobs", "top_logprobs", "stream_options", "return_token_ids", "return_tokens_as_token_ids", "include_reasoning":
		return true
	}
	return false
}

func (d *decoder) read(key string, value []byte) (err error) {
	switch key {
	case "model":
		d.req.Model, err = rawjson.String(value)
	case "stream":
		d.req.Stream, err = parseBool(value)
	case "system":
		d.system = value
	case "messages":
		d.messages = value
	case "tools":
		d.tools = value
	case "tool_choice":
		d.choice = value
	case "thinking":
		err = d.readThinking(value)
	case "output_config":
		err = d.readOutputConfig(value)
	case "output_format":
		err = d.readFormat(value)
	case "mcp_servers":
		if servers, err := rawjson.ParseArray(value); err != nil || len(servers) > 0 {
			return errors.New("there is no server here that could call others: connect the harness to them and send their tools")
		}
	default:
		if !isDropped(key) {
			err = d.readSampling(key, value)
		}
	}
	return err
}

func (d *decoder) readSampling(key string, value []byte) (err error) {
	s := &d.req.Sampling
	switch key {
	case "max_tokens":
		s.MaxTokens, err = parsePositive(value)
	case "temperature":
		s.Temperature, err = parseFloat(value)
	case "top_p":
		s.TopP, err = parseFloat(value)
	case "top_k":
		s.TopK, err = parseInt(value)
	case "stop_sequences":
		s.Stop, err = parseStrings(value)
	case "seed":
		var seed int64
		if err = json.Unmarshal(value, &seed); err != nil {
			return fmt.Errorf("an integer expected, got %s", rawjson.Kind(value))
		}
		s.Seed = &seed
	case "chat_template_kwargs":
		s.ChatTemplateKwargs, err = parseObject(bytes.Clone(value))
	default:
		d.req.Extra = append(d.req.Extra, rawjson.Member{Key: key, Value: bytes.Clone(value)})
	}
	return err
}

// readThinking takes in whether the model is to think. "adaptive" leaves it to
// the model, and so does a type that is not known yet.
func (d *decoder) readThinking(value []byte) error {
	o, err := parseObject(value)
	if err != nil {
		return err
	}
	kind, err := stringOf(o, "type")
	if err != nil {
		return err
	}
	switch kind {
	case "enabled":
		d.thinking = new(bool)
		*d.thinking = true
	case "disabled":
		d.thinking = new(bool)
	}
	display, err := stringOf(o, "display")
	d.hidden = display == "omitted"
	return err
}

// readOutputConfig takes in the shape an answer must have. How hard to try is
// not something that engines have a common word for.
func (d *decoder) readOutputConfig(value []byte) error {
	o, err := parseObject(value)
	if err != nil {
		return err
	}
	if format := o.Get("format"); !rawjson.IsNull(format) {
		return within("format", d.readFormat(format))
	}
	return nil
}

func (d *decoder) readFormat(value []byte) error {
	o, err := parseObject(value)
	if err != nil {
		return err
	}
	if kind, err := stringOf(o, "type"); err != nil || kind != "json_schema" {
		if err == nil {
			err = wrong("type", "is %q, must be \"json_schema\"", kind)
		}
		return err
	}
	schema := o.Get("schema")
	if _, err := parseObject(schema); err != nil {
		return within("schema", err)
	}
	b := append([]byte(nil), `{"type":"json_schema","json_schema":{"name":"answer","schema":`...)
	b = append(b, schema...)
	d.req.ResponseFormat = append(b, "}}"...)
	return nil
}

// finish reads what needs more than one field.
func (d *decoder) finish() error {
	tools, err := parseTools(d.tools)
	if err != nil {
		return within("tools", err)
	}
	choice, err := parseChoice(d.choice)
	if err != nil {
		return within("tool_choice", err)
	}
	if err := d.setTools(tools, choice); err != nil {
		return err
	}
	c := conversation{tools: tools}
	if d.system != nil {
		if err := within("system", c.addSystem(d.system)); err != nil {
			return err
		}
	}
	if err := c.addAll(d.messages); err != nil {
		return within("messages", err)
	}
	d.req.Messages = c.out
	if c.prefilled {
		// The answer goes on where the assistant's last words end.
		d.req.Extra = append(d.req.Extra,
			rawjson.Member{Key: "continue_final_message", Value: json.RawMessage("true")},
			rawjson.Member{Key: "add_generation_prompt", Value: json.RawMessage("false")})
	}
	if kwargs := &d.req.Sampling.ChatTemplateKwargs; d.thinking != nil && kwargs.Get("enable_thinking") == nil {
		kwargs.Set("enable_thinking", fmt.Appendf(nil, "%t", *d.thinking))
	}
	d.req.Reply = asked{model: d.req.Model, hidden: d.hidden}
	return nil
}
