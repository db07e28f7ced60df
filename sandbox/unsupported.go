package sandbox

import (
	"errors"
	"fmt"
)

// UnsupportedError says which part of a Spec a driver cannot honour.
type UnsupportedError struct {
	// Field is the field as the task has it, such as runtime.image.
	Field  string
	Reason string
}

func (e *UnsupportedError) Error() string { return e.Field + ": " + e.Reason }

// Unwrap makes it an errors.ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return errors.ErrUnsupported }

// Unsupported makes an UnsupportedError.
func Unsupported(field, format string, args ...any) error {
	return &UnsupportedError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
