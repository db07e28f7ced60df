package gemini

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"polar/llm"
	"polar/rawjson"
)

// Fail writes err as a whole response, as Google would say it.
func (Protocol) Fail(w http.ResponseWriter, err *llm.Error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if err.RetryAfter != "" && err.Kind != llm.OverBudget {
		h.Set("Retry-After", err.RetryAfter)
	}
	w.WriteHeader(code(err))
	_, _ = w.Write(appendError(nil, err)) // who is gone needs no explanation
}

func code(err *llm.Error) int {
	if err.Status == 0 {
		return http.StatusInternalServerError
	}
	return err.Status
}

func appendError(dst []byte, err *llm.Error) []byte {
	message := err.Error()
	if err.Kind == llm.ContextOverflow {
		message = overflow(err.Message)
	}
	dst = append(dst, `{"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code(err)), 10)
	dst = append(dst, `,"message":`...)
	dst = rawjson.AppendString(dst, message)
	dst = append(dst, `,"status":"`...)
	dst = append(dst, status(err.Kind)...)
	dst = append(dst, '"')
	return append(appendDetails(dst, err), "}}"...)
}

// appendDetails writes what clients act on: the field that is wrong, how long to
// wait, and that waiting does not help. A client takes a limit to pass with time
// unless it is one of a day.
func appendDetails(dst []byte, err *llm.Error) []byte {
	const begin = `,"details":[{"@type":"type.googleapis.com/google.rpc.`
	seconds, noNumber := strconv.Atoi(err.RetryAfter)
	switch {
	case err.Kind == llm.BadRequest && err.Param != "":
		dst = append(dst, begin+`BadRequest","fieldViolations":[{"field":`...)
		dst = rawjson.AppendString(dst, err.Param)
		dst = append(dst, `,"description":`...)
		dst = rawjson.AppendString(dst, err.Message)
		return append(dst, "}]}]"...)
	case err.Kind == llm.OverBudget:
		dst = append(dst, begin+`QuotaFailure","violations":[{"quotaId":"SessionBudgetPerDay","description":`...)
		dst = rawjson.AppendString(dst, err.Message)
		return append(dst, "}]}]"...)
	case err.Kind == llm.RateLimited && noNumber == nil && seconds >= 0:
		dst = append(dst, begin+`RetryInfo","retryDelay":"`...)
		dst = strconv.AppendInt(dst, int64(seconds), 10)
		return append(dst, `s"}]`...)
	}
	return dst
}

// status is Google's name for a kind of error.
func status(kind llm.ErrorKind) string {
	switch kind {
	case llm.BadRequest, llm.ContextOverflow, llm.TooLarge:
		return "INVALID_ARGUMENT"
	case llm.UnknownKey:
		return "UNAUTHENTICATED"
	case llm.SessionEnded:
		return "PERMISSION_DENIED"
	case llm.NotFound:
		return "NOT_FOUND"
	case llm.OverBudget, llm.RateLimited:
		return "RESOURCE_EXHAUSTED"
	case llm.EngineFailed, llm.StorageFailed:
		return "UNAVAILABLE"
	case llm.EngineTimeout:
		return "DEADLINE_EXCEEDED"
	}
	return "INTERNAL"
}

var (
	limitPattern = regexp.MustCompile(`(?i)(?:context|model) length[^0-9]{0,20}(\d+)`)
	countPattern = regexp.MustCompile(`(?i)(\d+) (?:in the messages|in the prompt|input tokens|tokens from the input)|resulted in (\d+)|input \((\d+) tokens`)
	totalPattern = regexp.MustCompile(`(?i)requested (?:a total of )?(\d+)`)
)

// overflow says that a prompt is too long in the words by which harnesses know
// it, with the numbers that are in the engine's own words.
func overflow(said string) string {
	limit, count := number(limitPattern, said), number(countPattern, said)
	if count == "" {
		count = number(totalPattern, said)
	}
	if limit == "" || count == "" {
		return "The input token count exceeds the maximum number of tokens allowed: " + said
	}
	return "The input token count (" + count + ") exceeds the maximum number of tokens allowed (" + limit + ")."
}

func number(pattern *regexp.Regexp, text string) string {
	found := pattern.FindStringSubmatch(text)
	for i := 1; i < len(found); i++ {
		if found[i] != "" {
			return found[i]
		}
	}
	return ""
}

// asError finds what to tell the harness of an error. One that was not meant
// for it is not shown.
func asError(err error) *llm.Error {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e
	}
	return &llm.Error{Status: http.StatusInternalServerError, Message: "the answer was cut off by an internal error"}
}
