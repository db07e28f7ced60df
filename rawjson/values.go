package rawjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
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

// plainInts reads integers of up to seven digits for as long as each is followed
// by a comma, and stops before the first that is not as plain as that. It takes
// eight bytes at a time: a digit at a time costs more than all else of a reply.
func (s *scanner) plainInts(dst []int32) []int32 {
	data, i := s.data, s.pos
	for len(data)-i >= 8 {
		digits := binary.LittleEndian.Uint64(data[i:]) ^ 0x3030303030303030
		// The lowest byte that is above 9 has its high bit set here; those after
		// it may have anything.
		after := (digits + 0x7676767676767676 | digits) & 0x8080808080808080
		n := bits.TrailingZeros64(after) / 8
		if n == 0 || n == 8 || data[i+n] != ',' {
			break
		}
		digits <<= 64 - 8*n // zeros before the number make it eight digits
		// Neighbours are put together to pairs, then all pairs at once.
		const everyOther = 0x000000FF000000FF
		pairs := digits*10 + digits>>8
		digits = ((pairs&everyOther)*(100+1000000<<32) + (pairs>>16&everyOther)*(1+10000<<32)) >> 32
		dst = append(dst, int32(uint32(digits)))
		i += n + 1
		s.pos = i
		if i < len(data) && data[i] == ' ' {
			i++
		}
	}
	return dst
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
