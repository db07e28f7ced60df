// Package rawjson reads and edits JSON without decoding and re-encoding it.
// What a harness wrote (tool schemas, tool arguments, fields we do not know)
// must reach the engine byte for byte: Go's encoder sorts keys, rewrites
// numbers and escapes <, and each of these changes the tokens of a prompt.
// It is also the fast path for the long arrays of token ids in engine replies.
package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Member is one key of an Object with its value as it was written.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Object is a JSON object that keeps the order and the bytes of its members.
type Object []Member

// ParseObject reads one JSON object. The values alias data.
func ParseObject(data []byte) (Object, error) {
	var o Object
	err := EachMember(data, func(key string, value []byte) error {
		o = append(o, Member{Key: key, Value: value})
		return nil
	})
	return o, err
}

// Get returns the value of key, or nil. Of a key that stands twice the last
// counts, as it does for the decoders of the engines.
func (o Object) Get(key string) json.RawMessage {
	for _, m := range slices.Backward(o) {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

// Set replaces the value of key in its place, or adds it at the end.
func (o *Object) Set(key string, value json.RawMessage) {
	for i := len(*o) - 1; i >= 0; i-- {
		if (*o)[i].Key == key {
			(*o)[i].Value = value
			return
		}
	}
	*o = append(*o, Member{Key: key, Value: value})
}

// Delete removes every member named key.
func (o *Object) Delete(key string) {
	kept := (*o)[:0]
	for _, m := range *o {
		if m.Key != key {
			kept = append(kept, m)
		}
	}
	*o = kept
}

// Append writes the object to dst.
func (o Object) Append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, m := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, m.Key)
		dst = append(dst, ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, '}')
}

// MarshalJSON writes the object; a nil object is {}.
func (o Object) MarshalJSON() ([]byte, error) { return o.Append(nil), nil }

// UnmarshalJSON reads the object from a copy of data; null leaves it nil.
func (o *Object) UnmarshalJSON(data []byte) error {
	if IsNull(data) {
		*o = nil
		return nil
	}
	parsed, err := ParseObject(bytes.Clone(data))
	*o = parsed
	return err
}

// ParseArray splits a JSON array into its elements, which alias data.
func ParseArray(data []byte) ([]json.RawMessage, error) {
	var out []json.RawMessage
	err := EachElement(data, func(value []byte) error {
		out = append(out, value)
		return nil
	})
	return out, err
}

// IsNull reports whether a value is absent or the literal null.
func IsNull(data []byte) bool {
	t := bytes.TrimSpace(data)
	return len(t) == 0 || string(t) == "null"
}

// EachMember calls f with each member of the object in data, in order. The
// values alias data. Inside them only strings and brackets are looked at, so
// that walking a tree reads each byte once a level and no more: what a stranger
// sent is checked with Valid first. The first error ends the walk.
func EachMember(data []byte, f func(key string, value []byte) error) error {
	return Members(data, func(key, value []byte) error { return f(string(key), value) })
}

// Members is EachMember without a string for each key, for what is read
// thousands of times a second. The key must not be kept or changed.
func Members(data []byte, f func(key, value []byte) error) error {
	w := NewWalker(data)
	err := w.Object(func(key []byte) error {
		value, err := w.Value()
		if err != nil {
			return err
		}
		return f(key, value)
	})
	if err != nil {
		return err
	}
	return w.End()
}

// EachElement calls f with each element of the array in data, in order, as
// EachMember does with members.
func EachElement(data []byte, f func(value []byte) error) error {
	w := NewWalker(data)
	err := w.Array(func() error {
		value, err := w.Value()
		if err != nil {
			return err
		}
		return f(value)
	})
	if err != nil {
		return err
	}
	return w.End()
}

// Valid says what is wrong with data as one JSON value, or nothing.
func Valid(data []byte) error {
	s := scanner{data: data}
	s.space()
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

// SyntaxError says where in the text JSON was broken.
type SyntaxError struct {
	Offset int
	Want   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not valid JSON: %s expected at byte %d", e.Want, e.Offset)
}
