// Package openai is what OpenAI's wire formats have in common: how an error is
// said, and how the fields of a request are read so that a wrong one is named.
package openai

import (
	"errors"
	"net/http"

	"polar/llm"
	"polar/rawjson"
)

// Fail writes err as a whole response, as OpenAI would say it.
func Fail(w http.ResponseWriter, err *llm.Error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch {
	case err.Kind == llm.OverBudget:
		h.Set("X-Should-Retry", "false") // what OpenAI's own clients heed
	case err.RetryAfter != "":
		h.Set("Retry-After", err.RetryAfter)
	case err.Kind == llm.EngineFailed:
		h.Set("Retry-After", "1") // it was waited for already; some clients would wait for minutes
	}
	status := err.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	w.WriteHeader(status)
	_, _ = w.Write(AppendError(nil, err)) // who is gone needs no explanation
}

// AppendError writes the error object, which is also how a Chat stream ends
// that breaks off.
func AppendError(dst []byte, err *llm.Error) []byte {
	kind, code := Words(err.Kind)
	dst = append(dst, `{"error":{"message":`...)
	dst = rawjson.AppendString(dst, err.Error())
	dst = append(dst, `,"type":`...)
	dst = rawjson.AppendString(dst, kind)
	dst = append(dst, `,"param":`...)
	dst = AppendOrNull(dst, err.Param)
	dst = append(dst, `,"code":`...)
	dst = AppendOrNull(dst, code)
	return append(dst, "}}"...)
}

// AppendOrNull writes s as a JSON string, and nothing as null.
func AppendOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return rawjson.AppendString(dst, s)
}

// Words are OpenAI's type and code of an error; some have no code.
func Words(kind llm.ErrorKind) (typ, code string) {
	switch kind {
	case llm.BadRequest:
		return "invalid_request_error", ""
	case llm.UnknownKey:
		return "invalid_request_error", "invalid_api_key"
	case llm.SessionEnded:
		return "invalid_request_error", "session_ended"
	case llm.NotFound:
		return "invalid_request_error", "not_found"
	case llm.TooLarge:
		return "invalid_request_error", "request_too_large"
	case llm.ContextOverflow:
		return "invalid_request_error", "context_length_exceeded"
	case llm.OverBudget:
		return "insufficient_quota", "insufficient_quota"
	case llm.RateLimited:
		return "rate_limit_error", "rate_limit_exceeded"
	case llm.EngineFailed, llm.EngineTimeout, llm.StorageFailed:
		return "server_error", string(kind)
	}
	return "server_error", ""
}

// AsError finds what to tell the harness of an error. One that was not meant
// for it is not shown.
func AsError(err error) *llm.Error {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e
	}
	return &llm.Error{Status: http.StatusInternalServerError, Message: "the answer was cut off by an internal error"}
}
