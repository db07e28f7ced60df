package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"polar/llm"
	"polar/rawjson"
	"polar/sse"
)

// canGenerate reports whether /generate can stand in for a chat: the answer is
// text, reasoning or tool calls that the server parses for us, and nothing
// constrains it.
func canGenerate(can abilities, req llm.Request) bool {
	if req.TopLogprobs != nil || req.ResponseFormat != nil && !isTextFormat(req.ResponseFormat) {
		return false
	}
	if usesTools(req) {
		if can.toolParser == "" {
			return false
		}
		if choice, err := rawjson.String(req.ToolChoice); req.ToolChoice != nil && (err != nil || choice != "auto") {
			return false
		}
		if string(req.ParallelToolCalls) == "false" {
			return false
		}
	}
	for _, m := range req.Messages {
		if !isText(m.Content) {
			return false
		}
	}
	return true
}

func usesTools(req llm.Request) bool {
	return len(req.Tools) > 0 && string(req.ToolChoice) != `"none"`
}

func isTextFormat(format json.RawMessage) bool {
	o, err := rawjson.ParseObject(format)
	return err == nil && string(o.Get("type")) == `"text"`
}

// isText reports content without images and the like.
func isText(content json.RawMessage) bool {
	if len(content) == 0 || content[0] != '[' {
		return true
	}
	return rawjson.EachElement(content, func(part []byte) error {
		o, err := rawjson.ParseObject(part)
		if err == nil && string(o.Get("type")) != `"text"` {
			err = errors.New("not text")
		}
		return err
	}) == nil
}

// openGenerate has the prompt rendered and asks for its continuation.
func (s *sglangServer) openGenerate(ctx context.Context, can abilities, req llm.Request) (reader, llm.Event, error) {
	prompt, err := s.render(ctx, req)
	if err != nil {
		return nil, llm.Event{}, err
	}
	ids := make(llm.IDs, 0, rawjson.CountElements(prompt))
	if ids, err = rawjson.Ints(ids, prompt); err != nil {
		return nil, llm.Event{}, fmt.Errorf("engine rendered a prompt that is not understood: %w", err)
	}
	toolParser := ""
	if usesTools(req) {
		toolParser = can.toolParser
	}
	parsed := toolParser != "" || can.reasoningParser != ""
	resp, err := s.do(ctx, http.MethodPost, "/generate", generateBody(req, prompt, parsed)) //nolint:bodyclose // the reader closes it
	if err != nil {
		return nil, llm.Event{}, err
	}
	g := &generated{body: resp.Body, events: sse.NewReader(resp.Body, s.events)}
	if parsed {
		g.parse = func(text string) (llm.Event, error) {
			return s.parse(ctx, can.reasoningParser, toolParser, req.Tools, text, g.read.id)
		}
	}
	first, err := g.next()
	if err != nil {
		g.close()
		return nil, llm.Event{}, err
	}
	engine := s.engine
	engine.Model = req.Model
	first.PromptIDs, first.Engine = ids, &engine
	return g, first, nil
}

// render is the list of the prompt's ids, as the server wrote it.
func (s *sglangServer) render(ctx context.Context, req llm.Request) ([]byte, error) {
	answer, err := s.ask(ctx, http.MethodPost, "/tokenize", sglangDialect(false).tokenizeBody(req, ""), s.events.MaxEventBytes)
	if err != nil {
		return nil, err
	}
	o, err := rawjson.ParseObject(answer)
	if err != nil {
		return nil, fmt.Errorf("engine rendered a prompt that is not understood: %w", err)
	}
	return o.Get("tokens"), nil
}

// generateBody writes a request for /generate. A parser needs the special
// tokens that tell reasoning and tool calls from text.
func generateBody(req llm.Request, prompt []byte, parsed bool) *body {
	b := newBody()
	b.text(`{"input_ids":`)
	b.raw(prompt)
	// Without a bound given it would be 128.
	b.text(`,"return_logprob":true,"stream":true,"sampling_params":{"max_new_tokens":`)
	s := req.Sampling
	if s.MaxTokens != nil {
		b.tail = strconv.AppendInt(b.tail, int64(*s.MaxTokens), 10)
	} else {
		b.text("null")
	}
	appendCommon(b, s)
	if s.TopK != nil {
		b.text(`,"top_k":`)
		b.tail = strconv.AppendInt(b.tail, int64(*s.TopK), 10)
	}
	if s.Seed != nil {
		b.text(`,"sampling_seed":`)
		b.tail = strconv.AppendInt(b.tail, *s.Seed, 10)
	}
	appendStop(b, s.Stop)
	if parsed {
		b.text(`,"skip_special_tokens":false`)
	}
	for _, f := range [][2]string{
		{"frequency_penalty"},
		{"presence_penalty"},
		{"repetition_penalty"},
		{"min_p"},
		{"min_tokens", "min_new_tokens"},
		{"stop_token_ids"},
		{"stop_regex"},
		{"ignore_eos"},
		{"no_stop_trim"},
		{"regex"},
		{"ebnf"},
		{"logit_bias"},
	} {
		b.field(or(f[1], f[0]), req.Extra.Get(f[0]))
	}
	b.text("}")
	for _, key := range []string{"priority", "cache_salt", "extra_key", "lora_path"} {
		b.field(key, req.Extra.Get(key))
	}
	b.text("}")
	return b
}

// parse has a whole answer split into reasoning, text and tool calls, which it
// names after the request's id.
func (s *sglangServer) parse(ctx context.Context, reasoningParser, toolParser string, tools []json.RawMessage, text, id string) (llm.Event, error) {
	e := llm.Event{Text: text}
	if reasoningParser != "" {
		b := newBody()
		b.text(`{"text":`)
		b.quoted(text)
		b.field("reasoning_parser", rawjson.Quote(reasoningParser))
		b.text("}")
		var said struct {
			Reasoning string `json:"reasoning_text"`
			Text      string `json:"text"`
		}
		if err := s.postInto(ctx, "/separate_reasoning", b, &said); err != nil {
			return e, err
		}
		e.Reasoning, e.Text = said.Reasoning, said.Text
	}
	if toolParser == "" {
		return e, nil
	}
	b := newBody()
	b.text(`{"text":`)
	b.quoted(e.Text)
	b.text(`,"tools":`)
	b.list(tools)
	b.field("tool_call_parser", rawjson.Quote(toolParser))
	b.text("}")
	var said struct {
		Text  string `json:"normal_text"`
		Calls []struct {
			Name       string `json:"name"`
			Parameters string `json:"parameters"`
		} `json:"calls"`
	}
	if err := s.postInto(ctx, "/parse_function_call", b, &said); err != nil {
		return e, err
	}
	e.Text = said.Text
	if len(said.Calls) > maxToolCalls {
		return e, fmt.Errorf("more than %d tool calls", maxToolCalls)
	}
	for i, c := range said.Calls {
		e.ToolCalls = append(e.ToolCalls, llm.ToolCallDelta{Index: i, ID: fmt.Sprintf("call_%s_%d", id, i), Name: c.Name, Arguments: c.Parameters})
	}
	return e, nil
}

func (s *sglangServer) postInto(ctx context.Context, path string, b *body, into any) error {
	answer, err := s.post(ctx, path, b)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		return fmt.Errorf("parse an answer at %s: %w", path, err)
	}
	return nil
}

// generated is a stream of /generate.
type generated struct {
	body   io.ReadCloser
	events *sse.Reader
	// parse makes what the harness sees of the whole text; nil if that is the
	// text itself.
	parse func(text string) (llm.Event, error)
	read  continuation
	given int // tokens
	shown int // bytes of text
	queue []llm.Event
}

func (g *generated) close() { _ = g.body.Close() }

func (g *generated) drain() {
	for {
		if _, err := g.events.Next(); err != nil {
			return
		}
	}
}

func (g *generated) next() (llm.Event, error) {
	for {
		if len(g.queue) > 0 {
			e := g.queue[0]
			g.queue = g.queue[1:]
			return e, nil
		}
		sent, err := g.events.Next()
		switch {
		case errors.Is(err, io.EOF), err == nil && string(sent.Data) == "[DONE]":
			return llm.Event{}, errors.New("engine cut the stream")
		case err != nil:
			return llm.Event{}, fmt.Errorf("engine cut the stream: %w", err)
		}
		if err := g.read.take(sent.Data); err != nil {
			return llm.Event{}, err
		}
		e := llm.Event{Tokens: g.tokens()}
		if g.parse == nil {
			e.Text = g.read.text[g.shown:]
			g.shown = len(g.read.text)
		}
		if g.read.finish == "" {
			if !isEmpty(e) {
				return e, nil
			}
			continue
		}
		if err := g.end(e); err != nil {
			return llm.Event{}, err
		}
	}
}

// end queues what is left to say once the engine is done.
func (g *generated) end(e llm.Event) error {
	if g.read.finish == "abort" || g.read.finish == "error" {
		g.queue = nil
		return fmt.Errorf("engine ended the answer with %q", g.read.finish)
	}
	tokens := e.Tokens
	if g.parse != nil {
		var err error
		if e, err = g.parse(strings.Clone(g.read.text)); err != nil {
			return err
		}
	}
	usage := g.read.usage
	usage.CompletionTokens = or(usage.CompletionTokens, g.given)
	e.Tokens, e.Finish, e.Usage = tokens, g.read.finish, &usage
	if len(e.ToolCalls) > 0 && e.Finish == llm.FinishStop {
		e.Finish = llm.FinishToolCalls
	}
	for _, part := range split(e) {
		if part.Finish != "" || !isEmpty(part) {
			g.queue = append(g.queue, part)
		}
	}
	return nil
}

// tokens are those that became certain since the last time: of what has come,
// as far as both lists go, and at the end all.
func (g *generated) tokens() []llm.Token {
	r := &g.read
	n := len(r.sampled)
	switch {
	case r.finish != "":
		n = max(n, len(r.ids))
	case len(r.ids) > 0:
		n = min(n, len(r.ids))
	}
	if n <= g.given {
		return nil
	}
	all := reconcile(r.ids[min(g.given, len(r.ids)):min(n, len(r.ids))], r.sampled[min(g.given, len(r.sampled)):min(n, len(r.sampled))])
	g.given = n
	return all
}
