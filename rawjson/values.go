package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Quote returns s as a JSON string.
func Quote(s string) json.RawMessage { return AppendString(make([]byte, 0, len(s)+2), s) }

// String decodes a JSON string.
func String(data []byte) (string, error) {
	if len(data) < 2 || data[0] != '"' {
		return "", fmt.Errorf("a string expected, got %s", Kind(data))
	}
	if body := data[1 : len(data)-1]; bytes.IndexByte(body, '\\') < 0 && isPlain(body) {
		return string(body), nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return "", err
	}
	return s, nil
}

// isPlain reports ASCII, for which a JSON string without escapes is its text.
func isPlain(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 || c == '"' || c < ' ' {
			return false
		}
	}
	return true
}

// Kind names what a value is, for error messages.
func Kind(data []byte) string {
	t := bytes.TrimSpace(data)
	if len(t) == 0 {
		return "nothing"
	}
	switch t[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// Ints appends the elements of an array of integers to dst. It is the path
// that a prompt of a hundred thousand ids takes, so it reads digits itself.
func Ints(dst []int32, data []byte) ([]int32, error) {
	s := scanner{data: data}
	s.space()
	if !s.take('[') {
		return dst, s.expected("an array of integers")
	}
	s.space()
	if s.take(']') {
		return dst, s.end()
	}
	for {
		dst = s.plainInts(dst)
		s.space()
		n, err := s.int32()
		if err != nil {
			return dst, err
		}
		dst = append(dst, n)
		s.space()
		if s.take(',') {
			continue
		}
		if s.take(']') {
			return dst, s.end()
		}
		return dst, s.expected("a comma or the end of the array")
	}
}

// plainInts reads integers of up to nine digits for as long as each is followed
// by a comma, and stops before the first that is not as plain as that.
func (s *scanner) plainInts(dst []int32) []int32 {
	data, i := s.data, s.pos
	for {
		from, n := i, int32(0)
		for i < len(data) {
			digit := data[i] - '0'
			if digit > 9 {
				break
			}
			n = n*10 + int32(digit) // a number that overflows is not taken
			i++
		}
		if i == from || i-from > 9 || i == len(data) || data[i] != ',' {
			return dst
		}
		dst = append(dst, n)
		i++
		s.pos = i
		if i < len(data) && data[i] == ' ' {
			i++
		}
	}
}

func (s *scanner) int32() (int32, error) {
	negative := s.take('-')
	i, n := s.pos, int64(0)
	for i < len(s.data) && s.data[i]-'0' <= 9 && i-s.pos <= 10 {
		n = n*10 + int64(s.data[i]-'0')
		i++
	}
	if i == s.pos || i-s.pos > 10 || n > math.MaxInt32 {
		return 0, s.expected("a 32-bit integer")
	}
	s.pos = i
	if negative {
		n = -n
	}
	return int32(n), nil
}

// CountElements is how many elements a flat array has, so that a caller can
// make room before it reads them.
func CountElements(data []byte) int {
	if t := bytes.TrimSpace(data); len(t) <= 2 {
		return 0
	}
	return bytes.Count(data, []byte{','}) + 1
}

// AppendInts writes ids as a JSON array.
func AppendInts(dst []byte, ids []int32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, ']')
}

// Float reads a JSON number.
func Float(data []byte) (float64, error) {
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return 0, fmt.Errorf("a number expected, got %s", Kind(data))
	}
	return f, nil
}

// Int reads a JSON integer.
func Int(data []byte) (int, error) {
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return 0, fmt.Errorf("an integer expected, got %s", Kind(data))
	}
	return n, nil
}
