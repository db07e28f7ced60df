package chat

import (
	"iter"
	"net/http"
	"strconv"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
	"polar/sse"
)

// stream writes an answer in chunks. The chunks of one answer share their
// beginning, which is made once.
type stream struct {
	answer
	w   *sse.Writer
	buf []byte
	// head is how long the shared beginning of buf is.
	head int
}

func newStream(w http.ResponseWriter, req llm.Request) *stream {
	s := &stream{answer: newAnswer(req), w: sse.NewWriter(w)}
	s.buf = s.appendHead(make([]byte, 0, 512), "chat.completion.chunk")
	s.head = len(s.buf)
	return s
}

// write sends the role with the first event, and a chunk for each event that
// has something to show. The last event goes out with all that ends the stream.
func (s *stream) write(events iter.Seq2[llm.Event, error]) error {
	s.begin()
	s.buf = append(s.buf, `"role":"assistant","content":""}`...)
	s.end("", "")
	s.w.Add("", s.buf)
	for e, err := range events {
		if err != nil {
			// The stream ends without [DONE], so that nobody takes it for whole.
			_ = s.w.Event("", openai.AppendError(nil, interrupted(err)))
			return err
		}
		if err := s.event(e); err != nil {
			return err
		}
	}
	return nil
}

// interrupted is an error as a stream tells it that breaks off. It comes without
// a status, and there are clients that know by the words of the message alone
// whether to ask again.
func interrupted(err error) *llm.Error {
	e := *openai.AsError(err)
	if kind, _ := openai.Words(e.Kind); kind == "server_error" {
		e.Message = kind + ": " + e.Message
	}
	return &e
}

func (s *stream) event(e llm.Event) error {
	if e.KeepAlive {
		return s.w.Comment("keep-alive")
	}
	logprobs := ""
	if s.logprobs {
		logprobs = string(e.Logprobs)
	}
	if e.Text != "" || e.Reasoning != "" || len(e.ToolCalls) > 0 || logprobs != "" {
		s.begin()
		s.appendDelta(e)
		s.end(logprobs, "")
		s.w.Add("", s.buf)
	}
	switch {
	case e.More:
		return nil // it goes out with the next one, which is here already
	case e.Finish == "":
		return s.w.Flush()
	}
	s.begin()
	s.buf = append(s.buf, '}')
	s.end("", e.Finish)
	s.w.Add("", s.buf)
	if s.usage {
		s.buf = append(s.buf[:s.head], `,"choices":[],"usage":`...)
		var u llm.Usage
		if e.Usage != nil {
			u = *e.Usage
		}
		s.buf = append(appendUsage(s.buf, u), '}')
		s.w.Add("", s.buf)
	}
	return s.w.Event("", []byte("[DONE]"))
}

// begin starts a chunk, up to the members of its delta.
func (s *stream) begin() {
	s.buf = append(s.buf[:s.head], `,"choices":[{"index":0,"delta":{`...)
}

// end closes a chunk after its delta.
func (s *stream) end(logprobs, finish string) {
	s.buf = append(s.buf, `,"logprobs":`...)
	if logprobs == "" {
		logprobs = "null"
	}
	s.buf = append(s.buf, logprobs...)
	s.buf = append(s.buf, `,"finish_reason":`...)
	s.buf = openai.AppendOrNull(s.buf, finish)
	s.buf = append(s.buf, "}]}"...)
}

// appendDelta writes the members of a delta and closes it.
func (s *stream) appendDelta(e llm.Event) {
	b := s.buf
	comma := func() {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
	}
	if e.Reasoning != "" {
		b = append(b, `"reasoning_content":`...)
		b = rawjson.AppendString(b, e.Reasoning)
	}
	if e.Text != "" {
		comma()
		b = append(b, `"content":`...)
		b = rawjson.AppendString(b, e.Text)
	}
	if len(e.ToolCalls) > 0 {
		comma()
		b = append(b, `"tool_calls":[`...)
		for i, d := range e.ToolCalls {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendToolCall(b, d)
		}
		b = append(b, ']')
	}
	s.buf = append(b, '}')
}

func appendToolCall(b []byte, d llm.ToolCallDelta) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(d.Index), 10)
	if d.ID != "" {
		b = append(b, `,"id":`...)
		b = rawjson.AppendString(b, d.ID)
		b = append(b, `,"type":"function"`...)
	}
	b = append(b, `,"function":{`...)
	if d.Name != "" {
		b = append(b, `"name":`...)
		b = rawjson.AppendString(b, d.Name)
		b = append(b, ',')
	}
	b = append(b, `"arguments":`...)
	b = rawjson.AppendString(b, d.Arguments)
	return append(b, "}}"...)
}
