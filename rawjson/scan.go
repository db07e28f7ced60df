package rawjson

import (
	"encoding/binary"
	"unicode/utf8"
)

// maxDepth bounds nesting, so that a hostile body cannot exhaust the stack.
const maxDepth = 1000

// scanner walks JSON text and checks its grammar as it goes.
type scanner struct {
	data  []byte
	pos   int
	depth int
}

func (s *scanner) expected(what string) error {
	return &SyntaxError{Offset: s.pos, Want: what}
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\n', '\r', '\t':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) end() error {
	s.space()
	if s.pos != len(s.data) {
		return s.expected("the end")
	}
	return nil
}

func (s *scanner) value() error {
	if s.pos >= len(s.data) {
		return s.expected("a value")
	}
	switch c := s.data[s.pos]; c {
	case '"':
		return s.str()
	case '{':
		return s.nested('}', true)
	case '[':
		return s.nested(']', false)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		return s.number()
	}
}

func (s *scanner) nested(closing byte, keyed bool) error {
	if s.depth++; s.depth > maxDepth {
		return s.expected("less nesting")
	}
	defer func() { s.depth-- }()
	s.pos++
	s.space()
	if s.take(closing) {
		return nil
	}
	for {
		s.space()
		if !keyed && s.pos < len(s.data) && s.data[s.pos]-'0' <= 9 {
			s.integers()
			s.space()
		}
		if keyed {
			if err := s.str(); err != nil {
				return err
			}
			s.space()
			if !s.take(':') {
				return s.expected("a colon")
			}
			s.space()
		}
		if err := s.value(); err != nil {
			return err
		}
		s.space()
		if s.take(',') {
			continue
		}
		if s.take(closing) {
			return nil
		}
		return s.expected("a comma or a closing bracket")
	}
}

// integers steps over all but the last of a run of integers with nothing but
// commas, and at most a space, between them, as a list of token ids is: the path of megabytes.
func (s *scanner) integers() {
	data, i := s.data, s.pos
	for {
		from := i
		for i < len(data) && data[i]-'0' <= 9 {
			i++
		}
		if i == from || i == len(data) || data[i] != ',' || data[from] == '0' && i > from+1 {
			return
		}
		i++
		s.pos = i
		if i < len(data) && data[i] == ' ' {
			i++
		}
	}
}

func (s *scanner) literal(word string) error {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return s.expected(word)
	}
	s.pos += len(word)
	return nil
}

// str walks one string. Its escapes are checked, its text is not: invalid
// UTF-8 passes, because a byte that came from a harness goes on as it is.
func (s *scanner) str() error {
	if !s.take('"') {
		return s.expected("a string")
	}
	data, i := s.data, s.pos
	for i < len(data) {
		i += plainLen(data[i:])
		if i == len(data) {
			break
		}
		switch c := data[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c == '\\':
			n := escapeLen(data[i:])
			if n == 0 {
				s.pos = i
				return s.expected("an escape sequence")
			}
			i += n
		case c < ' ':
			s.pos = i
			return s.expected("an escaped control character")
		default:
			i++
		}
	}
	s.pos = i
	return s.expected("the end of a string")
}

// plainLen is how many bytes at the start of b, in steps of eight, surely are
// none that a string must end at or escape.
func plainLen(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		if ((x-' '*ones)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&highs != 0 {
			break
		}
	}
	return i
}

// escapeLen is the length of the escape sequence at the start of b, or 0.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if !isHex(c) {
				return 0
			}
		}
		return 6
	}
	return 0
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (s *scanner) digits() bool {
	from := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > from
}

func (s *scanner) number() error {
	data, i := s.data, s.pos
	if i < len(data) && data[i] == '-' {
		i++
	}
	from := i
	for i < len(data) && data[i]-'0' <= 9 {
		i++
	}
	if i > from+1 && data[from] == '0' {
		i = from + 1 // a number has no leading zero: what follows is another thing
	}
	s.pos = i
	if i == from {
		return s.expected("a value")
	}
	if i == len(data) || data[i] != '.' && data[i]|0x20 != 'e' {
		return nil
	}
	return s.fraction()
}

// fraction walks what follows the integer part of a number.
func (s *scanner) fraction() error {
	if s.take('.') && !s.digits() {
		return s.expected("a digit")
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return s.expected("a digit")
		}
	}
	return nil
}

// AppendString writes s as a JSON string and escapes only what JSON demands.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, `\ufffd`...)
				i++
				from = i
				continue
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
