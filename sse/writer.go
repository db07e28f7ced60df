package sse

import (
	"bytes"
	"net/http"
)

// Writer writes events to a response. It is not for use by more than one
// goroutine at a time.
type Writer struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf []byte
}

// NewWriter sets the headers of an event stream on w. Nothing is written yet.
func NewWriter(w http.ResponseWriter) *Writer {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	return &Writer{w: w, rc: http.NewResponseController(w)}
}

// Event writes one event, and what was added before it, and flushes. A typ of
// "" leaves the type out. The error is of the connection: the client is gone.
func (w *Writer) Event(typ string, data []byte) error {
	w.Add(typ, data)
	return w.Flush()
}

// Comment writes a comment, which clients ignore, and flushes.
func (w *Writer) Comment(text string) error {
	w.appendLines(":", []byte(text))
	w.buf = append(w.buf, '\n')
	return w.Flush()
}

// Add puts one event into the buffer, to be written with what comes next.
func (w *Writer) Add(typ string, data []byte) {
	if typ != "" {
		w.buf = append(w.buf, "event: "...)
		w.buf = append(w.buf, typ...)
		w.buf = append(w.buf, '\n')
	}
	w.appendLines("data:", data)
	w.buf = append(w.buf, '\n')
}

// Flush writes what was added, if anything was, and pushes it out to the client.
func (w *Writer) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		return err
	}
	return w.rc.Flush()
}

// appendLines writes text as lines that each begin with the field's name: a
// line end within the text would otherwise end the field.
func (w *Writer) appendLines(field string, text []byte) {
	for {
		w.buf = append(w.buf, field...)
		w.buf = append(w.buf, ' ')
		i := bytes.IndexAny(text, "\r\n")
		if i < 0 {
			w.buf = append(w.buf, text...)
			w.buf = append(w.buf, '\n')
			return
		}
		w.buf = append(w.buf, text[:i]...)
		w.buf = append(w.buf, '\n')
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			i++
		}
		text = text[i+1:]
	}
}
