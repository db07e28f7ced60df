package backend

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"polar/llm"
	"polar/rawjson"
)

// sglangServer is one SGLang server: what it is asked, and how.
type sglangServer struct {
	*client
	config SGLangConfig
	engine llm.Engine
	// known is what a probe found; nil until one has run.
	known atomic.Pointer[abilities]
	// doubtful says that an answer in one piece had no ids and nobody has asked
	// why yet.
	doubtful atomic.Bool
	// avoidUntil is when a server that failed may be asked first again, in
	// nanoseconds of the Unix clock.
	avoidUntil atomic.Int64
}

// abilities are what a server can do.
type abilities struct {
	style                       string
	tokenizer                   bool
	toolParser, reasoningParser string
}

func newSGLangServer(c *client, config SGLangConfig) *sglangServer {
	s := &sglangServer{
		client: c, config: config,
		engine: llm.Engine{Kind: "sglang", URL: c.url, LogprobMode: config.LogprobMode},
	}
	s.doubtful.Store(config.Mode == "generate") // which needs to know the server's parsers
	return s
}

// avoidFor is how long a server that failed is asked only after the others.
const avoidFor = 5 * time.Second

func (s *sglangServer) avoid() { s.avoidUntil.Store(time.Now().Add(avoidFor).UnixNano()) }

func (s *sglangServer) isAvoided(now time.Time) bool { return now.UnixNano() < s.avoidUntil.Load() }

// sglangDialect is streamed with all ids in an event at the end, or in one
// piece with the ids in each of the places that versions have them.
func sglangDialect(stream bool) dialect {
	d := dialect{reasoningKey: "reasoning_content", logprobs: true, stream: stream}
	if stream {
		d.flags = []string{"return_input_ids", "return_output_ids"}
	} else {
		d.flags = []string{"return_prompt_token_ids", "return_meta_info", "return_token_ids"}
	}
	return d
}

// style is how a call is made: as the probe found best, or the safest way.
func (s *sglangServer) style(req llm.Request) (string, abilities) {
	known := s.known.Load()
	switch {
	case known == nil:
		return styleWhole, abilities{}
	case known.style == styleGenerate && !canGenerate(*known, req):
		return styleWhole, *known
	}
	return known.style, *known
}

func (s *sglangServer) open(ctx context.Context, style string, can abilities, req llm.Request) (reader, llm.Event, error) {
	logprobs := req.TopLogprobs != nil
	switch style {
	case styleGenerate:
		return s.openGenerate(ctx, can, req)
	case styleStream:
		return s.openStream(ctx, sglangDialect(true).chatBody(req), s.engine, logprobs, true)
	case stylePlain:
		plain := dialect{reasoningKey: "reasoning_content", stream: true}
		return s.openStream(ctx, plain.chatBody(req), s.engine, logprobs, false)
	}
	r, first, err := s.openWhole(ctx, sglangDialect(false).chatBody(req), s.engine, logprobs)
	if err == nil && s.known.Load() == nil && (len(first.Tokens) == 0 || first.PromptIDs == nil) {
		s.doubtful.Store(true)
	}
	return r, first, err
}

// reconsider probes a server of which nothing is known and which gave an answer
// without ids. If it cannot be found out now, the next such answer asks again.
func (s *sglangServer) reconsider(ctx context.Context) {
	if s.doubtful.CompareAndSwap(true, false) {
		_, _ = s.probe(ctx)
	}
}

// probe finds the best way of asking and remembers it.
func (s *sglangServer) probe(ctx context.Context) (Probe, error) {
	served, err := s.served(ctx)
	if err != nil {
		return Probe{}, err
	}
	p := Probe{Engine: "sglang", URL: s.url, Model: served.ID, MaxContext: served.MaxModelLen, StreamsIDs: StreamsNo}
	can := abilities{toolParser: s.config.ToolCallParser, reasoningParser: s.config.ReasoningParser}
	s.describe(ctx, &p, &can)
	_, err = s.countTokens(ctx, sglangDialect(false), probeRequest(served.ID), "")
	can.tokenizer = err == nil
	p.Tokenizer = can.tokenizer
	for _, style := range s.candidates(can) {
		reply, err := s.try(ctx, style, can, probeRequest(served.ID))
		if isRefusal(err) {
			continue // this version does not know it
		}
		if err != nil {
			return Probe{}, err
		}
		p.returned(reply)
		p.Style, can.style = style, style
		if p.Missing() == "" {
			break
		}
	}
	if !p.SampledIDs { // then a chat that streams is the best that can be had
		p.Style, can.style = stylePlain, stylePlain
	}
	switch p.Style {
	case styleStream:
		p.StreamsIDs = StreamsAtEnd
	case styleGenerate:
		p.StreamsIDs = StreamsYes
	}
	s.known.Store(&can)
	return p, nil
}

// candidates are the ways to try, best first. A stream is complete only with a
// parser: without one, SGLang leaves out the logprobs of tokens that show no
// text, such as the last.
func (s *sglangServer) candidates(can abilities) []string {
	var styles []string
	if s.config.Mode == "generate" && can.tokenizer {
		styles = append(styles, styleGenerate)
	}
	if can.toolParser != "" || can.reasoningParser != "" {
		styles = append(styles, styleStream)
	}
	styles = append(styles, styleWhole)
	if (s.config.Mode == "" || s.config.Mode == "auto") && can.tokenizer {
		styles = append(styles, styleGenerate)
	}
	return styles
}

func (s *sglangServer) try(ctx context.Context, style string, can abilities, req llm.Request) (llm.Reply, error) {
	return llm.Collect(s.answer(ctx, s.timeout, func(ctx context.Context, _ int) (reader, llm.Event, error) {
		return s.open(ctx, style, can, req)
	}))
}

func isRefusal(err error) bool {
	e, ok := errors.AsType[*llm.Error](err)
	return ok && (e.Kind == llm.BadRequest || e.Kind == llm.NotFound)
}

// describe reads what the server says of itself, under the names that versions
// have for it. What it does not say stays as it is.
func (s *sglangServer) describe(ctx context.Context, p *Probe, can *abilities) {
	for _, path := range []string{"/server_info", "/get_server_info", "/model_info", "/get_model_info"} {
		answer, err := s.get(ctx, path)
		if err != nil {
			continue
		}
		said, err := rawjson.ParseObject(answer)
		if err != nil {
			continue
		}
		for key, into := range map[string]*string{
			"version": &p.Version, "tool_call_parser": &can.toolParser, "reasoning_parser": &can.reasoningParser,
		} {
			if text, err := rawjson.String(said.Get(key)); err == nil && *into == "" {
				*into = text
			}
		}
		if n, err := rawjson.Int(said.Get("context_length")); err == nil && p.MaxContext == 0 {
			p.MaxContext = n
		}
	}
}
