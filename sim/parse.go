package sim

import (
	"bytes"
	"unicode/utf8"

	"polar/rawjson"
)

// delta is what the parser made of some tokens.
type delta struct {
	reasoning []byte
	text      []byte
	calls     []callDelta
}

// callDelta is a piece of a tool call. The name comes once, with the first.
type callDelta struct {
	index     int
	name      string
	arguments []byte
}

// reset empties the delta and keeps its room.
func (d *delta) reset() {
	d.reasoning, d.text, d.calls = d.reasoning[:0], d.text[:0], d.calls[:0]
}

// parser turns sampled tokens into reasoning, text and tool calls as an
// engine's parsers do: piece by piece, holding back what the next token may
// give another meaning. The zero value is ready.
type parser struct {
	in      region
	held    []byte // of the region, not yet given out
	opening string // what the template puts before the region's text, if still to come
	calls   int
	named   bool // the open call's name has been given out
	// raw leaves everything in the text, and special tokens too if special says
	// so.
	raw, special bool
}

type region byte

const (
	inText region = iota
	inThinking
	inCall
)

// add takes one token with its text, of which a stop string may have cut a
// part off, and adds what became certain to d.
func (p *parser) add(id int32, text []byte, d *delta) {
	if p.raw {
		if IsSpecial(id) && p.special && id != EndOfTurn {
			text = appendToken(nil, id)
		}
		p.held = append(p.held, text...)
		p.give(d)
		return
	}
	switch id {
	case StartOfThinking:
		p.leave(d, "")
		p.in, p.opening = inThinking, "\n"
	case EndOfThinking:
		p.leave(d, "\n")
		p.in, p.opening = inText, "\n\n"
	case StartOfToolCall:
		p.leave(d, "\n")
		p.in, p.opening, p.named = inCall, "", false
	case EndOfToolCall:
		p.leave(d, callClosing)
		p.calls++
		p.in, p.opening = inText, ""
	default:
		if IsSpecial(id) {
			return
		}
		p.held = append(p.held, text...)
		p.give(d)
	}
}

// end gives out what was held back, as text can no longer be something else.
func (p *parser) end(d *delta) {
	if p.in != inCall { // what is left of a call that was cut off is its closing
		p.emit(d, p.held)
	}
	p.held = p.held[:0]
}

// leave ends a region and drops what the template puts before the token that
// ended it.
func (p *parser) leave(d *delta, closing string) {
	p.emit(d, bytes.TrimSuffix(p.held, []byte(closing)))
	p.held = p.held[:0]
}

// give passes on as much of the held text as no later token can change.
func (p *parser) give(d *delta) {
	if p.in == inCall && !p.named {
		name, n := callName(p.held)
		if n == 0 {
			return
		}
		p.named = true
		p.held = p.held[:copy(p.held, p.held[n:])]
		d.calls = append(d.calls, callDelta{index: p.calls, name: name})
	}
	if p.opening != "" {
		if len(p.held) < len(p.opening) && p.opening[:len(p.held)] == string(p.held) {
			return
		}
		p.held = p.held[:copy(p.held, bytes.TrimPrefix(p.held, []byte(p.opening)))]
		p.opening = ""
	}
	n := len(p.held) - p.keep()
	if n <= 0 {
		return
	}
	p.emit(d, p.held[:n])
	p.held = p.held[:copy(p.held, p.held[n:])]
}

// keep is how many bytes at the end must wait for the next token: an unfinished
// character, or what may be the template's own closing of the region.
func (p *parser) keep() int {
	n := 0
	switch {
	case p.raw:
	case p.in == inCall:
		n = min(len(p.held), len(callClosing))
	case bytes.HasSuffix(p.held, []byte("\n")):
		n = 1
	}
	return n + unfinishedRune(p.held[:len(p.held)-n])
}

func (p *parser) emit(d *delta, text []byte) {
	if len(text) == 0 {
		return
	}
	switch p.in {
	case inText:
		d.text = append(d.text, text...)
	case inThinking:
		d.reasoning = append(d.reasoning, text...)
	case inCall:
		if !p.named {
			return
		}
		if n := len(d.calls); n > 0 && d.calls[n-1].index == p.calls {
			d.calls[n-1].arguments = append(d.calls[n-1].arguments, text...)
			return
		}
		d.calls = append(d.calls, callDelta{index: p.calls, arguments: bytes.Clone(text)})
	}
}

// callName reads the name of a call once the text up to its arguments is
// there, and says how long that is.
func callName(body []byte) (name string, n int) {
	i := bytes.Index(body, []byte(callMiddle))
	if i < len(callOpening) {
		return "", 0
	}
	name, err := rawjson.String(body[len(callOpening):i])
	if err != nil {
		return "", 0
	}
	return name, i + len(callMiddle)
}

// unfinishedRune is the length of a character that the end of b cuts off.
func unfinishedRune(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		c := b[len(b)-n]
		if utf8.RuneStart(c) {
			if c >= 0xC0 && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
