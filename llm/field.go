package llm

import "errors"

// FieldError says which field of a request is wrong. Formats make them while
// they decode, and InvalidRequest of what they end up with.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap is what is wrong with the field.
func (e *FieldError) Unwrap() error { return e.Err }

// InvalidRequest is err as what the harness is told of its request.
func InvalidRequest(err error) *Error {
	if f, ok := errors.AsType[*FieldError](err); ok {
		e := Errorf(BadRequest, "%v", f.Err)
		e.Param = f.Field
		return e
	}
	return Errorf(BadRequest, "%v", err)
}
