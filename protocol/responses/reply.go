package responses

import (
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"polar/llm"
	"polar/protocol/openai"
	"polar/sse"
)

// ignoredHeader names the tools that the harness offered and nobody can run.
const ignoredHeader = "X-Polar-Ignored-Tools"

// errNoEnd is of an engine that stopped talking without an end.
var errNoEnd = errors.New("the answer has no end")

// answer is one answer as it is put together. Streamed or not it is made of the
// same items: a stream also tells how they come to be.
type answer struct {
	asked
	// base is what the ids of the answer have in common.
	base    string
	created int64
	usage   *llm.Usage

	items []*piece
	// open is the reasoning or the text that is being written, and newest what
	// was written to last.
	open, newest *piece
	calls        map[int]*piece
	// reasoned counts the tokens of reasoning, and unseen those that came with
	// nothing to show since.
	reasoned, unseen int

	out *sse.Writer // nil: not streamed
	seq int
	buf []byte
}

// Reply writes the answer to a request that Decode made. A nil error means that
// all of it was handed to the connection.
func (p Protocol) Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error {
	a := &answer{base: req.ID, created: time.Now().Unix(), calls: map[int]*piece{}}
	a.asked, _ = req.Reply.(asked)
	if a.model == "" {
		a.model = req.Model
	}
	if a.base == "" {
		a.base = newBase()
	}
	if len(a.ignored) > 0 {
		w.Header().Set(ignoredHeader, headerList(a.ignored))
	}
	if req.Stream {
		a.out = sse.NewWriter(w)
		return a.stream(events)
	}
	o, err := a.collect(events)
	if err != nil {
		p.Fail(w, openai.AsError(err))
		return err
	}
	return writeWhole(w, a.appendResponse(nil, o))
}

// collect takes the whole answer in.
func (a *answer) collect(events iter.Seq2[llm.Event, error]) (outcome, error) {
	for e, err := range events {
		if err != nil {
			return outcome{}, err
		}
		a.take(e)
		if e.Finish != "" {
			return a.finish(e.Finish), nil
		}
	}
	return outcome{}, errNoEnd
}

// stream passes the answer on as it comes. It begins with the first sign of
// life, whatever that is.
func (a *answer) stream(events iter.Seq2[llm.Event, error]) error {
	a.sendResponse("response.created", inProgress)
	a.sendResponse(inProgress.event(), inProgress)
	for e, err := range events {
		if err != nil {
			return a.fail(err)
		}
		if e.KeepAlive {
			if err := a.out.Comment("keep-alive"); err != nil {
				return err
			}
			continue
		}
		a.take(e)
		if e.Finish != "" {
			o := a.finish(e.Finish)
			a.sendResponse(o.event(), o)
			return a.out.Flush()
		}
		if e.More {
			continue // it goes out with the next one, which is here already
		}
		if err := a.out.Flush(); err != nil {
			return err
		}
	}
	return a.fail(errNoEnd)
}

// fail ends the stream with what went wrong. Items that are not whole are not
// in the response.
func (a *answer) fail(err error) error {
	o := outcome{status: "failed", failure: openai.AsError(err)}
	a.sendResponse(o.event(), o)
	_ = a.out.Flush() // who is gone needs no explanation
	return err
}

// headerList writes names as the value of a header.
func headerList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = name
		if plain := strconv.QuoteToASCII(name); len(plain) != len(name)+2 || strings.Contains(name, ",") {
			quoted[i] = plain
		}
	}
	return strings.Join(quoted, ", ")
}

func writeWhole(w http.ResponseWriter, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return err
	}
	// Without it a connection that broke would not be noticed.
	return http.NewResponseController(w).Flush()
}
