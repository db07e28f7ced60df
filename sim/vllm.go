package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"polar/llm"
	"polar/rawjson"
)

// This file reads what vLLM and SGLang are asked with, which is mostly the same;
// vllmreply.go answers as vLLM does.

// apiError is a refusal.
type apiError struct {
	status  int
	kind    string
	message string
	param   string
}

func (e *apiError) Error() string { return e.message }

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, kind: "BadRequestError", param: param,
		message: fmt.Sprintf(format, args...),
	}
}

// asRefusal makes any error one that can be written; what is not in the wire's
// shape yet is a bad request.
func asRefusal(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e
	}
	return badRequest("", "%v", err)
}

// write answers with the refusal in the engine's shape: SGLang has no object
// around it.
func (e *apiError) write(w http.ResponseWriter, engine string) {
	b := append([]byte(nil), `{"error":{"message":`...)
	if engine == EngineSGLang {
		b = append(b[:0], `{"object":"error","message":`...)
	}
	b = rawjson.AppendString(b, e.message)
	b = append(b, `,"type":`...)
	b = rawjson.AppendString(b, e.kind)
	b = append(b, `,"param":`...)
	if e.param == "" {
		b = append(b, "null"...)
	} else {
		b = rawjson.AppendString(b, e.param)
	}
	b = fmt.Appendf(b, `,"code":%d}`, e.status)
	if engine != EngineSGLang {
		b = append(b, '}')
	}
	writeJSON(w, e.status, b)
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left is noticed by its context
}

// chatRequest is a body of /v1/chat/completions or, in part, /tokenize.
type chatRequest struct {
	conversation
	options
	model         string
	stream        bool
	includeUsage  bool
	returnIDs     bool
	logprobs      bool
	topLogprobs   int
	tokensAsIDs   bool
	hideReasoning bool
	topNull       bool
	wants         sglangWants
	// continues is /generate: there is no chat, and the text is raw, with
	// special tokens in it if special says so.
	continues, raw, special bool
}

func (s *Server) decodeChat(body []byte) (*chatRequest, error) {
	req := &chatRequest{conversation: conversation{thinking: true, openTurn: true}}
	choices := 1
	err := rawjson.EachMember(body, func(key string, value []byte) error {
		if rawjson.IsNull(value) {
			req.topNull = req.topNull || key == "top_logprobs"
			return nil
		}
		var err error
		switch key {
		case "model":
			req.model, err = rawjson.String(value)
		case "messages":
			req.messages, err = decodeMessages(value)
		case "tools":
			if req.tools, err = rawjson.ParseArray(value); err == nil && len(req.tools) == 0 && s.config.Engine == EngineVLLM {
				err = fmt.Errorf("value error, must not be an empty list; leave the field out instead")
			}
		case "tool_choice":
			err = req.toolChoice(value)
		case "response_format":
			err = req.responseFormat(value)
		case "parallel_tool_calls":
			req.oneCall, err = not(boolean(value))
		case "stream":
			req.stream, err = boolean(value)
		case "stream_options":
			err = member(value, "include_usage", func(v []byte) (err error) {
				req.includeUsage, err = boolean(v)
				return err
			})
		case "chat_template_kwargs":
			err = member(value, "enable_thinking", func(v []byte) (err error) {
				req.thinking, err = boolean(v)
				return err
			})
		case "add_generation_prompt":
			req.openTurn, err = boolean(value)
		case "return_token_ids":
			req.returnIDs, err = boolean(value)
		case "return_tokens_as_token_ids":
			req.tokensAsIDs, err = boolean(value)
		case "include_reasoning":
			req.hideReasoning, err = not(boolean(value))
		case "logprobs":
			req.logprobs, err = boolean(value)
		case "top_logprobs":
			if req.topLogprobs, err = rawjson.Int(value); err == nil && (req.topLogprobs < 0 || req.topLogprobs > 20) {
				err = fmt.Errorf("must be from 0 to 20")
			}
		case "max_tokens", "max_completion_tokens":
			if req.maxTokens, err = rawjson.Int(value); err == nil && req.maxTokens < 1 {
				err = fmt.Errorf("must be at least 1, got %d", req.maxTokens)
			}
		case "n":
			choices, err = rawjson.Int(value)
		case "return_prompt_token_ids", "return_meta_info", "return_input_ids", "return_output_ids":
			err = req.wants.read(key, value)
		default:
			err = req.sampling(key, value)
		}
		if err != nil {
			return badRequest(key, "%s: %v", key, err)
		}
		return nil
	})
	if err == nil {
		err = req.checkChoice()
	}
	switch {
	case err != nil:
		return nil, asRefusal(err)
	case choices != 1:
		return nil, badRequest("n", "n: %d choices asked for, the simulation gives 1", choices)
	case req.topLogprobs > 0 && !req.logprobs:
		return nil, badRequest("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true")
	}
	if s.config.Engine == EngineSGLang {
		return req, s.sglangChat(req)
	}
	if s.config.NoIDs {
		req.returnIDs = false
	}
	if req.hideReasoning { // vLLM keeps both back so that they cannot give it away
		req.returnIDs, req.logprobs = false, false
	}
	return req, nil
}

func decodeMessages(value []byte) ([]llm.Message, error) {
	list := make([]llm.Message, 0, 16)
	err := rawjson.EachElement(value, func(v []byte) error {
		m, err := llm.ParseMessage(v)
		if err != nil {
			return fmt.Errorf("[%d]: %w", len(list), err)
		}
		list = append(list, m)
		return nil
	})
	return list, err
}

// sampling reads a sampling parameter; one that changes nothing here is let
// pass.
func (o *options) sampling(key string, value []byte) error {
	switch key {
	case "seed":
		n, err := rawjson.Int(value)
		if err != nil {
			return err
		}
		seed := int64(n)
		o.seed = &seed
	case "temperature":
		t, err := rawjson.Float(value)
		if err != nil {
			return err
		}
		if t < 0 {
			return fmt.Errorf("must be non-negative, got %v", t)
		}
		o.greedy = t == 0
	case "stop":
		if value[0] == '"' {
			s, err := rawjson.String(value)
			o.stop = []string{s}
			return err
		}
		return rawjson.EachElement(value, func(v []byte) error {
			s, err := rawjson.String(v)
			o.stop = append(o.stop, s)
			return err
		})
	case "include_stop_str_in_output":
		var err error
		o.includeStop, err = boolean(value)
		return err
	}
	return nil
}

func boolean(value []byte) (bool, error) {
	switch string(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("true or false expected, got %s", rawjson.Kind(value))
}

func not(b bool, err error) (bool, error) { return !b, err }

// member calls f with one member of an object, if it is there.
func member(object []byte, name string, f func(value []byte) error) error {
	return rawjson.EachMember(object, func(key string, value []byte) error {
		if key != name || rawjson.IsNull(value) {
			return nil
		}
		if err := f(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// fit bounds the answer by the context limit, and refuses what does not fit in
// the engine's words: harnesses look for them to compact their history.
// With a fault that says so, the prompt is one token too long.
func (s *Server) fit(req *chatRequest, prompt int, fault *Fault) error {
	limit := s.config.ContextLimit
	if fault.is(FaultContext) {
		limit = max(prompt-1, 1)
	}
	if s.config.Engine == EngineSGLang {
		return sglangFit(req, prompt, limit)
	}
	switch {
	case prompt >= limit:
		return badRequest("messages", "This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, prompt)
	case req.maxTokens > limit-prompt:
		return badRequest("max_tokens", "'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).",
			req.maxTokens, limit, prompt, req.maxTokens, limit, prompt)
	case req.maxTokens == 0:
		req.maxTokens = limit - prompt
	}
	return nil
}

// tokenizeRequest is a body of /tokenize or /detokenize.
type tokenizeRequest struct {
	prompt  *string
	chat    *chatRequest
	tokens  []int32
	strings bool
}

func (s *Server) decodeTokenize(body []byte) (tokenizeRequest, error) {
	var req tokenizeRequest
	var messages json.RawMessage
	err := rawjson.EachMember(body, func(key string, value []byte) (err error) {
		switch key {
		case "prompt":
			var s string
			s, err = rawjson.String(value)
			req.prompt = &s
		case "messages":
			messages = value
		case "tokens":
			req.tokens, err = rawjson.Ints([]int32{}, value)
		case "return_token_strs":
			req.strings, err = boolean(value)
		}
		if err != nil {
			return badRequest(key, "%s: %v", key, err)
		}
		return nil
	})
	if err != nil {
		return req, asRefusal(err)
	}
	if messages != nil && s.tokenizesChats() {
		req.chat, err = s.decodeChat(body)
	}
	return req, err
}
