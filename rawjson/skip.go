package rawjson

import "bytes"

// skip returns the value at the cursor, without the space around it. It finds
// the value's end and does not check what is inside.
func (s *scanner) skip() ([]byte, error) {
	s.space()
	from := s.pos
	if err := s.skipValue(); err != nil {
		return nil, err
	}
	return s.data[from:s.pos:s.pos], nil
}

func (s *scanner) skipValue() error {
	if s.pos >= len(s.data) {
		return s.expected("a value")
	}
	switch s.data[s.pos] {
	case '"':
		return s.skipString()
	case '[', '{':
		if n := flatListLen(s.data[s.pos:]); n > 0 {
			s.pos += n
			return nil
		}
		return s.skipNested()
	}
	return s.value()
}

// flatListLen is the length of a list of numbers at the start of b, or 0. A
// list of token ids is the longest thing there is in a reply.
func flatListLen(b []byte) int {
	if len(b) < 2 || b[0] != '[' || b[1] != '-' && b[1]-'0' > 9 {
		return 0
	}
	end := bytes.IndexByte(b, ']')
	if end < 0 || bytes.IndexByte(b[1:end], '"') >= 0 || bytes.IndexByte(b[1:end], '[') >= 0 || bytes.IndexByte(b[1:end], '{') >= 0 {
		return 0
	}
	return end + 1
}

// skipNested steps over an object or array by counting brackets.
func (s *scanner) skipNested() error {
	data, depth := s.data, 0
	for i := s.pos; i < len(data); {
		switch data[i] {
		case '"':
			s.pos = i
			if err := s.skipString(); err != nil {
				return err
			}
			i = s.pos
			continue
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				s.pos = i + 1
				return nil
			}
		}
		i++
	}
	s.pos = len(data)
	return s.expected("a closing bracket")
}

// skipString steps over a string: its end is the first quote that no
// backslash escapes.
func (s *scanner) skipString() error {
	data, i := s.data, s.pos+1
	for {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			s.pos = len(data)
			return s.expected("the end of a string")
		}
		i += n
		slashes := 0
		for data[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			s.pos = i
			return nil
		}
	}
}
