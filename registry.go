package polar

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Spec names a plug-in and its settings.
type Spec struct {
	Kind   string
	Config json.RawMessage
}

// Registry maps each kind of a plug-in to what opens one.
type Registry[T any] map[string]func(json.RawMessage) (T, error)

// ErrUnknownKind is wrapped when a Spec names a plug-in that is not there.
var ErrUnknownKind = errors.New("not known")

// Open makes the plug-in that s names. An unknown kind lists the known ones.
func (r Registry[T]) Open(s Spec) (T, error) {
	open, ok := r[s.Kind]
	if !ok {
		var none T
		return none, fmt.Errorf("%q is %w; known: %s", s.Kind, ErrUnknownKind, strings.Join(r.Kinds(), ", "))
	}
	return open(s.Config)
}

// Kinds lists what can be opened, in alphabetical order.
func (r Registry[T]) Kinds() []string { return slices.Sorted(maps.Keys(r)) }

// Opener makes a registry entry of a constructor. The settings are decoded
// strictly over the zero C: a field that C does not have is an error.
func Opener[T, C any](open func(C) (T, error)) func(json.RawMessage) (T, error) {
	return func(raw json.RawMessage) (T, error) {
		var c C
		if len(raw) > 0 && string(raw) != "null" {
			if err := DecodeStrict(raw, &c); err != nil {
				var none T
				return none, err
			}
		}
		return open(c)
	}
}
