package responses

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"polar/protocol/openai"
	"polar/rawjson"
)

// freeformParameters is the schema of a function that stands for a tool which
// takes text.
const freeformParameters = `{"type":"object","properties":{"input":{"type":"string","description":"The whole text."}},"required":["input"],"additionalProperties":false}`

// freeformArguments are the arguments with which the model gave a tool this
// text, as a JSON string.
func freeformArguments(input string) string {
	b := append(make([]byte, 0, len(input)+16), `{"input": `...)
	return string(append(rawjson.AppendString(b, input), '}'))
}

// format says what text a tool takes.
type format struct{ syntax, grammar string }

func parseFormat(at string, data []byte) (format, error) {
	var f format
	if data == nil {
		return f, nil
	}
	err := rawjson.EachMember(data, func(key string, value []byte) (err error) {
		switch key {
		case "syntax":
			f.syntax, err = rawjson.String(value)
		case "definition":
			f.grammar, err = rawjson.String(value)
		}
		return openai.InField(at+".format."+key, err)
	})
	return f, openai.InField(at+".format", err)
}

// describe says in the tool's description what its format says: that it takes
// text, and which.
func (f format) describe(description string) string {
	var b strings.Builder
	if description != "" {
		b.WriteString(description)
		b.WriteString("\n\n")
	}
	b.WriteString("Call this function with one argument, `input`: the whole text as one string.")
	if f.grammar != "" {
		fmt.Fprintf(&b, " The text must match this %s grammar:\n%s", f.syntax, f.grammar)
	}
	return b.String()
}

// freeform finds the text in the arguments of a tool that takes text, as they
// come. Arguments that do not begin as they should are the text themselves: the
// harness is the one to judge it. The zero value is ready.
type freeform struct {
	state freeformState
	// held is the beginning, until it can be told what it is, and then an escape
	// sequence until its end.
	held []byte
	// high is the first half of a surrogate pair that waits for the second.
	high rune
}

type freeformState int

const (
	inHead freeformState = iota
	inText
	inEscape
	asItIs
	atEnd
)

// maxHead bounds the space that is waited through for the text to begin.
const maxHead = 256

// write appends to dst the text that the next piece of the arguments adds.
func (f *freeform) write(dst []byte, piece string) []byte {
	for i := 0; i < len(piece); {
		switch f.state {
		case inHead:
			f.held = append(f.held, piece[i])
			i++
			dst = f.head(dst)
		case inText:
			n := strings.IndexAny(piece[i:], `"\`)
			if n < 0 {
				n = len(piece) - i
			}
			if n > 0 {
				dst = append(f.flushHigh(dst), piece[i:i+n]...)
				i += n
				continue
			}
			if piece[i] == '\\' {
				f.state = inEscape
			} else {
				dst, f.state = f.flushHigh(dst), atEnd
			}
			i++
		case inEscape:
			f.held = append(f.held, piece[i])
			i++
			dst = f.escape(dst)
		case asItIs:
			return append(dst, piece[i:]...)
		case atEnd:
			return dst
		}
	}
	return dst
}

// end appends what can only be told now that there is no more.
func (f *freeform) end(dst []byte) []byte {
	if f.state == inText || f.state == inEscape {
		dst = f.flushHigh(dst)
	}
	return dst
}

// head looks at the beginning: it goes on, the text begins, or it is no such
// arguments at all.
func (f *freeform) head(dst []byte) []byte {
	const want = `{"input":"`
	at := 0
	for _, c := range f.held {
		switch {
		case at < len(want) && c == want[at]:
			at++
		case (c == ' ' || c == '\t' || c == '\n' || c == '\r') && (at < 2 || at > 7): // outside of the key
		default:
			at = -1
		}
		if at < 0 {
			break
		}
	}
	switch {
	case at == len(want):
		f.state, f.held = inText, f.held[:0]
	case at < 0 || len(f.held) > maxHead:
		f.state = asItIs
		dst = append(dst, f.held...)
	}
	return dst
}

// escape decodes the sequence in held once it is whole. One that JSON does not
// know stays as it is.
func (f *freeform) escape(dst []byte) []byte {
	c := f.held[0]
	if c == 'u' {
		return f.unicode(dst)
	}
	dst = f.flushHigh(dst)
	switch c {
	case '"', '\\', '/':
		dst = append(dst, c)
	case 'b':
		dst = append(dst, '\b')
	case 'f':
		dst = append(dst, '\f')
	case 'n':
		dst = append(dst, '\n')
	case 'r':
		dst = append(dst, '\r')
	case 't':
		dst = append(dst, '\t')
	default:
		dst = append(dst, '\\', c)
	}
	f.state, f.held = inText, f.held[:0]
	return dst
}

func (f *freeform) unicode(dst []byte) []byte {
	last := f.held[len(f.held)-1]
	if len(f.held) > 1 && !isHex(last) {
		dst = append(f.flushHigh(dst), '\\')
		dst = append(dst, f.held[:len(f.held)-1]...)
		f.state, f.held = inText, f.held[:0]
		return f.write(dst, string([]byte{last}))
	}
	if len(f.held) < 5 {
		return dst
	}
	var r rune
	for _, c := range f.held[1:] {
		r = r<<4 | hexValue(c)
	}
	f.state, f.held = inText, f.held[:0]
	if f.high != 0 {
		if pair := utf16.DecodeRune(f.high, r); pair != utf8.RuneError {
			f.high = 0
			return utf8.AppendRune(dst, pair)
		}
		dst = f.flushHigh(dst)
	}
	if utf16.IsSurrogate(r) && r < 0xdc00 {
		f.high = r
		return dst
	}
	return utf8.AppendRune(dst, r)
}

// flushHigh gives up on the second half of a pair.
func (f *freeform) flushHigh(dst []byte) []byte {
	if f.high == 0 {
		return dst
	}
	f.high = 0
	return utf8.AppendRune(dst, utf8.RuneError)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func hexValue(c byte) rune {
	switch {
	case c <= '9':
		return rune(c - '0')
	case c >= 'a':
		return rune(c-'a') + 10
	}
	return rune(c-'A') + 10
}
