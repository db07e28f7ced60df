package llm

import "fmt"

// ErrorKind says what went wrong with a call, so that each wire format can say
// it as its provider does.
type ErrorKind string

// The kinds of error a harness can meet.
const (
	BadRequest      ErrorKind = "bad_request"
	UnknownKey      ErrorKind = "unknown_key"
	SessionEnded    ErrorKind = "session_ended"
	NotFound        ErrorKind = "not_found"
	TooLarge        ErrorKind = "too_large"
	ContextOverflow ErrorKind = "context_overflow"
	OverBudget      ErrorKind = "over_budget"
	RateLimited     ErrorKind = "rate_limited"
	EngineFailed    ErrorKind = "engine_failed"
	EngineTimeout   ErrorKind = "engine_timeout"
	StorageFailed   ErrorKind = "storage_failed"
)

// Error is a call that failed, in no provider's words.
type Error struct {
	Kind    ErrorKind
	Status  int // the HTTP status the harness gets
	Message string
	// Param names the field of a bad request, if one is to blame.
	Param string
	// RetryAfter is a Retry-After header's value, passed on from the engine.
	RetryAfter string
}

func (e *Error) Error() string {
	if e.Param != "" {
		return fmt.Sprintf("%s: %s", e.Param, e.Message)
	}
	return e.Message
}

// Errorf makes an Error of a kind with the status that kind has.
func Errorf(kind ErrorKind, format string, args ...any) *Error {
	return &Error{Kind: kind, Status: kind.status(), Message: fmt.Sprintf(format, args...)}
}

func (k ErrorKind) status() int {
	switch k {
	case UnknownKey:
		return 401
	case SessionEnded:
		return 403
	case NotFound:
		return 404
	case TooLarge:
		return 413
	case OverBudget, RateLimited:
		return 429
	case EngineFailed, StorageFailed:
		return 503
	case EngineTimeout:
		return 504
	case BadRequest, ContextOverflow:
		return 400
	}
	return 500
}
