package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"polar/rawjson"
)

// This file is what SGLang is asked with and vLLM is not; sglangreply.go and
// continuation.go answer as SGLang does.

// sglangStyles are the versions whose ways of giving ids differ, oldest first.
func sglangStyles() []string {
	return []string{"v0.5.10", "v0.5.12", "v0.5.13", "v0.5.17", "v0.5.18", "next"}
}

// since reports whether the style followed is that of a version or a later one.
func (c Config) since(version string) bool {
	styles := sglangStyles()
	return slices.Index(styles, c.SGLangStyle) >= slices.Index(styles, version)
}

// The parsers that the server was started with.
const (
	toolParserName      = "qwen25"
	reasoningParserName = "qwen3"
)

// sglangWants are the ids that a request asks for.
type sglangWants struct{ promptIDs, metaInfo, inputIDs, outputIDs bool }

func (w *sglangWants) read(key string, value []byte) error {
	into := map[string]*bool{
		"return_prompt_token_ids": &w.promptIDs, "return_meta_info": &w.metaInfo,
		"return_input_ids": &w.inputIDs, "return_output_ids": &w.outputIDs,
	}[key]
	var err error
	*into, err = boolean(value)
	return err
}

// sglangChat makes a chat request one of the version followed: what that does
// not know it ignores, what it cannot do it refuses.
func (s *Server) sglangChat(req *chatRequest) error {
	c := s.config
	req.hideReasoning = false
	req.raw = c.NoParsers
	if !c.since("v0.5.13") {
		req.wants.promptIDs, req.wants.metaInfo = false, false
	}
	if !c.since("v0.5.17") {
		req.returnIDs = false
	}
	if !c.since("next") {
		req.wants.inputIDs, req.wants.outputIDs = false, false
	}
	if req.stream {
		for name, asked := range map[string]bool{
			"return_prompt_token_ids": req.wants.promptIDs, "return_meta_info": req.wants.metaInfo, "return_token_ids": req.returnIDs,
		} {
			if asked {
				return badRequest("", "%s is not supported with streaming. Please set stream=false when using %s=true.", name, name)
			}
		}
	}
	if len(c.Workers) > 0 { // a router passes on what it knows
		req.wants, req.returnIDs = sglangWants{}, false
	}
	return nil
}

// sglangFit is fit in SGLang's words. An answer that is not bounded ends with
// the context.
func sglangFit(req *chatRequest, prompt, limit int) error {
	switch {
	case prompt >= limit:
		return badRequest("", "The input (%d tokens) is longer than the model's context length (%d tokens).", prompt, limit)
	case req.maxTokens > limit-prompt:
		return badRequest("", "Requested token count exceeds the model's maximum context length of %d tokens. You requested a total of %d tokens: %d tokens from the input messages and %d tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
			limit, prompt+req.maxTokens, prompt, req.maxTokens)
	case req.maxTokens == 0:
		req.maxTokens = limit - prompt
	}
	return nil
}

// tokenizesChats reports whether /tokenize takes messages.
func (s *Server) tokenizesChats() bool {
	return s.config.Engine == EngineVLLM || s.config.since("v0.5.12")
}

func (s *Server) sglangRoutes() {
	s.mux.HandleFunc("POST /generate", s.generate)
	s.mux.HandleFunc("POST /v1/tokenize", s.tokenize)
	s.mux.HandleFunc("POST /v1/detokenize", s.detokenize)
	s.mux.HandleFunc("POST /parse_function_call", s.parseFunctionCall)
	s.mux.HandleFunc("POST /separate_reasoning", s.separateReasoning)
	for _, path := range []string{"GET /server_info", "GET /get_server_info"} {
		s.mux.HandleFunc(path, s.serverInfo)
	}
	for _, path := range []string{"GET /model_info", "GET /get_model_info"} {
		s.mux.HandleFunc(path, s.modelInfo)
	}
	if len(s.config.Workers) > 0 {
		s.mux.HandleFunc("GET /workers", s.workers)
	}
}

// parsers are the names of the parsers as JSON; null is none.
func (s *Server) parsers() (tool, reasoning string) {
	if s.config.NoParsers {
		return "null", "null"
	}
	return `"` + toolParserName + `"`, `"` + reasoningParserName + `"`
}

func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	version := strings.TrimPrefix(s.config.SGLangStyle, "v")
	if version == "next" {
		version = "0.5.19.dev0"
	}
	tool, reasoning := s.parsers()
	writeJSON(w, http.StatusOK, fmt.Appendf(nil,
		`{"model_path":%s,"served_model_name":%[1]s,"context_length":null,"tool_call_parser":%s,"reasoning_parser":%s,"incremental_streaming_output":%t,"version":"%s+polar.sim"}`,
		rawjson.Quote(s.config.Model), tool, reasoning, s.config.IncrementalStreaming, version))
}

func (s *Server) modelInfo(w http.ResponseWriter, _ *http.Request) {
	tool, reasoning := s.parsers()
	writeJSON(w, http.StatusOK, fmt.Appendf(nil,
		`{"model_path":%s,"served_model_name":%[1]s,"is_generation":true,"weight_version":"default","tool_call_parser":%s,"reasoning_parser":%s}`,
		rawjson.Quote(s.config.Model), tool, reasoning))
}

// workers lists the servers behind a router.
func (s *Server) workers(w http.ResponseWriter, _ *http.Request) {
	type worker struct {
		ID      string `json:"id"`
		URL     string `json:"url"`
		Model   string `json:"model_id"`
		Type    string `json:"worker_type"`
		Healthy bool   `json:"is_healthy"`
	}
	list := make([]worker, len(s.config.Workers))
	for i, url := range s.config.Workers {
		list[i] = worker{fmt.Sprintf("worker-%d", i), url, s.config.Model, "regular", true}
	}
	body, err := json.Marshal(map[string]any{"workers": list, "total": len(list)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

// parseFunctionCall finds the tool calls in a text.
func (s *Server) parseFunctionCall(w http.ResponseWriter, r *http.Request) {
	text, err := s.textToParse(w, r, "tool_call_parser", toolParserName)
	if err != nil {
		asRefusal(err).write(w, EngineSGLang)
		return
	}
	var p parser
	var d delta
	for _, id := range EncodeSpecial(nil, text) {
		var said []byte
		if !IsSpecial(id) {
			said = appendToken(nil, id)
		}
		p.add(id, said, &d)
	}
	p.end(&d)
	b := rawjson.AppendString([]byte(`{"normal_text":`), string(d.text))
	b = append(b, `,"calls":[`...)
	for i, c := range d.calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"tool_index":%d,"name":%s,"parameters":%s}`, c.index, rawjson.Quote(c.name), rawjson.Quote(string(c.arguments)))
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

// separateReasoning splits a text into reasoning and the rest.
func (s *Server) separateReasoning(w http.ResponseWriter, r *http.Request) {
	text, err := s.textToParse(w, r, "reasoning_parser", reasoningParserName)
	if err != nil {
		asRefusal(err).write(w, EngineSGLang)
		return
	}
	reasoning := ""
	if rest, thinks := strings.CutPrefix(text, specialText[StartOfThinking-firstSpecial]); thinks {
		reasoning, text, _ = strings.Cut(rest, specialText[EndOfThinking-firstSpecial])
		reasoning = strings.TrimSuffix(strings.TrimPrefix(reasoning, "\n"), "\n")
		text = strings.TrimPrefix(text, "\n\n")
	}
	b := rawjson.AppendString([]byte(`{"reasoning_text":`), reasoning)
	b = append(b, `,"text":`...)
	writeJSON(w, http.StatusOK, append(rawjson.AppendString(b, text), '}'))
}

// textToParse reads a request to parse a text with a parser, which must be the
// one there is.
func (s *Server) textToParse(w http.ResponseWriter, r *http.Request, key, want string) (string, error) {
	body, err := s.body(w, r)
	if err == nil {
		err = rawjson.Valid(body)
	}
	if err != nil {
		return "", err
	}
	o, err := rawjson.ParseObject(body)
	if err != nil {
		return "", err
	}
	if name, _ := rawjson.String(o.Get(key)); name != want {
		return "", badRequest(key, "Unsupported %s: %s", key, o.Get(key))
	}
	text, err := rawjson.String(o.Get("text"))
	if err != nil {
		return "", badRequest("text", "text: %v", err)
	}
	return text, nil
}
