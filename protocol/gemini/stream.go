package gemini

import (
	"iter"
	"net/http"
	"time"

	"polar/llm"
)

// stream writes an answer in chunks.
type stream struct {
	*answer
	out *chunks
	buf []byte
}

func newStream(w http.ResponseWriter, a *answer) *stream {
	return &stream{answer: a, out: newChunks(w, a.array)}
}

func (s *stream) write(events iter.Seq2[llm.Event, error]) error {
	for e, err := range events {
		if err != nil {
			_ = s.out.fail(appendError(nil, asError(err))) // the first error is the one to tell
			return err
		}
		if err := s.event(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) event(e llm.Event) error {
	if e.KeepAlive {
		return s.out.alive()
	}
	s.take(e)
	if e.Text == "" && (e.Reasoning == "" || !s.thoughts) && e.Finish == "" {
		if e.More {
			return nil
		}
		// The engine is at work on what is not to be seen yet.
		return s.out.idle()
	}
	s.buf = s.appendChunk(s.buf[:0], e)
	s.out.add(s.buf)
	switch {
	case e.Finish != "":
		return s.out.end()
	case e.More:
		return nil // it goes out with the next one, which is here already
	}
	return s.out.flush()
}

// chunks writes a stream in either of its two forms.
type chunks struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	buf   []byte
	array bool
	// begun says that the array is, and any that it has an element.
	begun, any bool
	wrote      time.Time
}

// quiet is how long nothing may be written while the engine is at work.
const quiet = 5 * time.Second

func newChunks(w http.ResponseWriter, array bool) *chunks {
	h := w.Header()
	if array {
		h.Set("Content-Type", "application/json")
	} else {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
	}
	h.Set("X-Accel-Buffering", "no") // nginx would hold chunks back
	return &chunks{w: w, rc: http.NewResponseController(w), array: array, wrote: time.Now()}
}

func (c *chunks) begin() {
	if c.array && !c.begun {
		c.buf = append(c.buf, '[')
	}
	c.begun = true
}

// add puts a chunk, which has no line ends, into the buffer.
func (c *chunks) add(chunk []byte) {
	c.begin()
	switch {
	case !c.array:
		c.buf = append(c.buf, "data: "...)
		c.buf = append(append(c.buf, chunk...), "\n\n"...)
	case c.any:
		c.buf = append(append(c.buf, ",\r\n"...), chunk...)
	default:
		c.buf = append(c.buf, chunk...)
	}
	c.any = true
}

// end ends the stream after a chunk.
func (c *chunks) end() error {
	if c.array {
		c.buf = append(c.buf, ']')
	}
	return c.flush()
}

// fail ends the stream with an error. Google writes it between the events as it
// is, and all of its clients know it so, but some only if they read nothing else
// with it, and take the answer for whole otherwise. Those know it as an event.
func (c *chunks) fail(chunk []byte) error {
	if c.array {
		c.add(chunk)
		return c.end()
	}
	c.add(chunk)
	if err := c.flush(); err != nil {
		return err
	}
	c.buf = append(append(c.buf, chunk...), "\n\n"...)
	return c.flush()
}

// alive shows a sign of life: an event without a line. A comment would be the
// way of server-sent events, but clients of this format do not know comments:
// some fail on one, some never see what follows. In an array it is white space.
func (c *chunks) alive() error {
	c.begin()
	if c.array {
		c.buf = append(c.buf, '\n')
	} else {
		c.buf = append(c.buf, "\n\n"...)
	}
	return c.flush()
}

// idle writes what waits, or a sign of life if nothing was written for long.
func (c *chunks) idle() error {
	if len(c.buf) == 0 && time.Since(c.wrote) >= quiet {
		return c.alive()
	}
	return c.flush()
}

// flush writes what was added, if anything was, and pushes it out to the client.
func (c *chunks) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	_, err := c.w.Write(c.buf)
	c.buf, c.wrote = c.buf[:0], time.Now()
	if err != nil {
		return err
	}
	return c.rc.Flush()
}
