package rawjson

import "bytes"

// Walker reads JSON text in one pass, however deep what is wanted lies: where
// EachMember finds the end of a value before it is looked into, a Walker goes
// in at once. It checks no more of values than EachMember does.
type Walker struct{ s scanner }

// NewWalker makes a walker that stands before the value in data.
func NewWalker(data []byte) Walker { return Walker{scanner{data: data}} }

// Object goes through the object at the cursor. f is called with the cursor
// before the value of each key and must go past it, with Object, Array or Value.
// The key must not be kept or changed.
func (w *Walker) Object(f func(key []byte) error) error {
	s := &w.s
	s.space()
	if !s.take('{') {
		return s.expected("an object")
	}
	s.space()
	if s.take('}') {
		return nil
	}
	for {
		s.space()
		key, err := w.key()
		if err != nil {
			return err
		}
		if err := f(key); err != nil {
			return err
		}
		s.space()
		if s.take(',') {
			continue
		}
		if s.take('}') {
			return nil
		}
		return s.expected("a comma or the end of the object")
	}
}

// key reads a key and the colon after it.
func (w *Walker) key() ([]byte, error) {
	s := &w.s
	from := s.pos
	if err := s.str(); err != nil {
		return nil, err
	}
	key := s.data[from+1 : s.pos-1]
	if bytes.IndexByte(key, '\\') >= 0 || !isPlain(key) {
		text, err := String(s.data[from:s.pos])
		if err != nil {
			return nil, err
		}
		key = []byte(text)
	}
	s.space()
	if !s.take(':') {
		return nil, s.expected("a colon")
	}
	return key, nil
}

// Array goes through the array at the cursor. f is called with the cursor
// before each element and must go past it.
func (w *Walker) Array(f func() error) error {
	s := &w.s
	s.space()
	if !s.take('[') {
		return s.expected("an array")
	}
	s.space()
	if s.take(']') {
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		s.space()
		if s.take(',') {
			continue
		}
		if s.take(']') {
			return nil
		}
		return s.expected("a comma or the end of the array")
	}
}

// Value goes past the value at the cursor and returns it. It aliases the data.
func (w *Walker) Value() ([]byte, error) { return w.s.skip() }

// Null goes past a null at the cursor and reports whether there was one.
func (w *Walker) Null() bool {
	w.s.space()
	if rest := w.s.data[w.s.pos:]; len(rest) < 4 || string(rest[:4]) != "null" {
		return false
	}
	w.s.pos += 4
	return true
}

// End is an error if something other than space is left.
func (w *Walker) End() error { return w.s.end() }
