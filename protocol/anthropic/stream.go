package anthropic

import (
	"iter"
	"net/http"
	"strconv"
	"time"

	"polar/llm"
	"polar/rawjson"
	"polar/sse"
)

// quiet is how long a harness is left without an event while the engine is at
// work on something that is not shown yet. Claude Code gives up after 15 s.
const quiet = 5 * time.Second

// stream writes an answer event by event.
type stream struct {
	answer
	to     http.ResponseWriter
	w      *sse.Writer // nil until there is something to write
	blocks blocks
	tally  tally
	begun  bool // message_start is out
	ended  bool // so is message_stop
	index  int  // of the open block, or of the next one
	// thought is the text of the open thinking block, for its signature.
	thought []byte
	buf     []byte
	// last is when something was last written.
	last time.Time
}

func newStream(w http.ResponseWriter, a answer) *stream {
	s := &stream{answer: a, to: w}
	s.blocks = blocks{answer: a, to: s}
	return s
}

// write sends message_start with the first event of the engine, which knows how
// long the prompt is, and everything that ends the answer with the last.
func (s *stream) write(events iter.Seq2[llm.Event, error]) error {
	for e, err := range events { // to its end: the engine's connection is of use again
		if err == nil {
			err = s.event(e)
		}
		if err != nil {
			return s.fail(err)
		}
	}
	if !s.ended {
		return s.fail(errNoEnd())
	}
	return nil
}

// event writes what is new.
func (s *stream) event(e llm.Event) error {
	s.open()
	if e.KeepAlive {
		return s.ping()
	}
	s.tally.add(e)
	if !s.begun {
		s.begun = true
		s.begin(`{"type":"message_start","message":`)
		s.buf = s.appendMessage(s.buf, nil)
		s.buf = append(s.buf, `,"stop_reason":null,"stop_sequence":null,"usage":`...)
		s.buf = append(appendUsage(s.buf, s.tally.usage), "}}"...)
		s.add("message_start")
	}
	if err := s.blocks.add(e); err != nil {
		return err
	}
	switch {
	case e.Finish != "":
		return s.end(e)
	case e.More:
		return nil // it goes out with the next one, which is here already
	case time.Since(s.last) >= quiet:
		return s.ping()
	}
	return s.connection(s.w.Flush())
}

// end writes all that ends the stream.
func (s *stream) end(e llm.Event) error {
	s.ended = true
	s.begin(`{"type":"message_delta","delta":{`)
	s.buf = appendStop(s.buf, s.blocks.stopReason(e), e.Stop)
	s.buf = append(s.buf, `},"usage":`...)
	s.buf = append(appendUsage(s.buf, s.tally.usage), '}')
	s.add("message_delta")
	return s.connection(s.w.Event("message_stop", []byte(`{"type":"message_stop"}`)))
}

func (s *stream) open() {
	if s.w == nil {
		s.w = sse.NewWriter(s.to)
		s.last = time.Now()
	}
}

func (s *stream) ping() error {
	s.last = time.Now()
	return s.connection(s.w.Event("ping", []byte(`{"type":"ping"}`)))
}

// gone is an error of the connection, on which nothing more can be said.
type gone struct{ error }

func (g gone) Unwrap() error { return g.error }

func (s *stream) connection(err error) error {
	if err != nil {
		return gone{err}
	}
	return nil
}

// fail tells the harness of an error, as a response of its own if nothing was
// written yet. The stream ends without message_stop.
func (s *stream) fail(err error) error {
	if g, ok := err.(gone); ok { //nolint:errorlint // it is never wrapped
		return g.error
	}
	switch {
	case s.ended:
		return err // nothing can follow what ends the stream
	case s.w == nil:
		Protocol{}.Fail(s.to, asError(err))
		return err
	}
	_ = s.w.Event("error", appendError(nil, asError(err), s.to.Header().Get(requestIDHeader)))
	return err
}

// begin starts the data of an event.
func (s *stream) begin(text string) { s.buf = append(s.buf[:0], text...) }

// beginBlock starts the data of an event about the open block.
func (s *stream) beginBlock(typ string) {
	s.begin(`{"type":"`)
	s.buf = append(s.buf, typ...)
	s.buf = append(s.buf, `","index":`...)
	s.buf = strconv.AppendInt(s.buf, int64(s.index), 10)
}

// add puts the event into the buffer, to be written with what comes next.
func (s *stream) add(typ string) {
	s.w.Add(typ, s.buf)
	s.last = time.Now()
}

func (s *stream) openBlock(kind string, call llm.ToolCall) {
	s.beginBlock("content_block_start")
	s.buf = append(s.buf, `,"content_block":{"type":"`...)
	s.buf = append(s.buf, kind...)
	switch kind {
	case thinkingBlock:
		s.thought = s.thought[:0]
		s.buf = append(s.buf, `","thinking":"","signature":""`...)
	case textBlock:
		s.buf = append(s.buf, `","text":""`...)
	case toolBlock:
		s.buf = append(s.buf, `","id":`...)
		s.buf = rawjson.AppendString(s.buf, call.ID)
		s.buf = append(s.buf, `,"name":`...)
		s.buf = rawjson.AppendString(s.buf, call.Name)
		s.buf = append(s.buf, `,"input":{}`...)
	}
	s.buf = append(s.buf, "}}"...)
	s.add("content_block_start")
}

func (s *stream) growBlock(kind, text string) {
	switch kind {
	case thinkingBlock:
		s.thought = append(s.thought, text...)
		if !s.hidden {
			s.delta("thinking_delta", "thinking", text)
		}
	case textBlock:
		s.delta("text_delta", "text", text)
	case toolBlock:
		s.delta("input_json_delta", "partial_json", text)
	}
}

// delta writes a piece of the open block.
func (s *stream) delta(typ, key, text string) {
	s.beginBlock("content_block_delta")
	s.buf = append(s.buf, `,"delta":{"type":"`...)
	s.buf = append(s.buf, typ...)
	s.buf = append(s.buf, `","`...)
	s.buf = append(s.buf, key...)
	s.buf = append(s.buf, `":`...)
	s.buf = rawjson.AppendString(s.buf, text)
	s.buf = append(s.buf, "}}"...)
	s.add("content_block_delta")
}

func (s *stream) closeBlock(kind string) {
	if kind == thinkingBlock {
		s.delta("signature_delta", "signature", sign(string(s.thought)))
	}
	s.beginBlock("content_block_stop")
	s.buf = append(s.buf, '}')
	s.add("content_block_stop")
	s.index++
}
