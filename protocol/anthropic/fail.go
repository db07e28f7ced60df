package anthropic

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"polar/llm"
	"polar/rawjson"
)

// requestIDHeader is where Anthropic's clients look for the id of a request.
const requestIDHeader = "Request-Id"

// Fail writes err as a whole response, as Anthropic would say it.
func (Protocol) Fail(w http.ResponseWriter, err *llm.Error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if err.RetryAfter != "" && err.Kind != llm.OverBudget {
		h.Set("Retry-After", err.RetryAfter)
	}
	if err.Kind == llm.OverBudget {
		h.Set("X-Should-Retry", "false") // what Anthropic's own clients heed
	}
	w.WriteHeader(statusOf(err))
	_, _ = w.Write(appendError(nil, err, h.Get(requestIDHeader))) // who is gone needs no explanation
}

func statusOf(err *llm.Error) int {
	if err.Status == 0 {
		return http.StatusInternalServerError
	}
	return err.Status
}

func appendError(dst []byte, err *llm.Error, requestID string) []byte {
	dst = append(dst, `{"type":"error","error":{"type":"`...)
	dst = append(dst, typeOf(err)...)
	dst = append(dst, `","message":`...)
	dst = rawjson.AppendString(dst, words(err))
	dst = append(dst, `},"request_id":`...)
	if requestID == "" {
		return append(dst, "null}"...)
	}
	return append(rawjson.AppendString(dst, requestID), '}')
}

// statusOverloaded is Anthropic's own: it has no room for the call right now.
const statusOverloaded = 529

// typeOf is Anthropic's type of an error.
func typeOf(err *llm.Error) string {
	switch err.Kind {
	case llm.BadRequest, llm.ContextOverflow:
		return "invalid_request_error"
	case llm.UnknownKey:
		return "authentication_error"
	case llm.SessionEnded:
		return "permission_error"
	case llm.NotFound:
		return "not_found_error"
	case llm.TooLarge:
		return "request_too_large"
	case llm.OverBudget, llm.RateLimited:
		return "rate_limit_error"
	case llm.EngineTimeout:
		return "timeout_error"
	case llm.EngineFailed, llm.StorageFailed:
	}
	if err.Status == statusOverloaded {
		return "overloaded_error"
	}
	return "api_error"
}

func words(err *llm.Error) string {
	if err.Kind == llm.ContextOverflow {
		return overflow(err.Error())
	}
	return err.Error()
}

// What engines say of a prompt that is too long: how many tokens there may be,
// how many the prompt has, and how many were to come after it.
var (
	limitPattern  = regexp.MustCompile(`(?i)(?:context length|model length|allowed length)(?: is only| is| of)? ?\(?(\d+)`)
	promptPattern = regexp.MustCompile(`(?i)(\d+) (?:input tokens|in the messages|tokens from the input)|resulted in (\d+) tokens|(?:prompt|input(?: length)?) \((?:total length |length )?(\d+)`)
	outputPattern = regexp.MustCompile(`(?i)(\d+) (?:output tokens|in the completion|tokens for the completion)|is too large: (\d+)`)
)

// overflow says that a prompt is too long in the words by which harnesses know
// it and then compact, or ask for a shorter answer.
func overflow(said string) string {
	prompt, limit, output := number(promptPattern, said), number(limitPattern, said), number(outputPattern, said)
	switch {
	case prompt > limit && limit > 0:
		return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", prompt, limit)
	case prompt > 0 && output > 0 && prompt+output > limit && limit > 0:
		return fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length or `max_tokens` and try again", prompt, output, limit)
	}
	return "prompt is too long: " + said
}

// number is the first number that a pattern finds, or 0.
func number(pattern *regexp.Regexp, text string) int {
	groups := pattern.FindStringSubmatch(text)
	for _, group := range groups[min(1, len(groups)):] {
		if n, err := strconv.Atoi(group); err == nil {
			return n
		}
	}
	return 0
}

// asError finds what to tell the harness of an error. One that was not meant
// for it is not shown.
func asError(err error) *llm.Error {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e
	}
	return &llm.Error{Status: http.StatusInternalServerError, Message: "the answer was cut off by an internal error"}
}
