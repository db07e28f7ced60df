package backend

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"polar/llm"
	"polar/rawjson"
)

// failure is an answer of the engine that is none.
type failure struct {
	err *llm.Error
	// status is that of the HTTP answer.
	status int
	// retry says that asking again may help, and after how long at the earliest.
	retry bool
	after time.Duration
}

func (f *failure) Error() string { return f.err.Error() }

// refused makes a failure of an HTTP answer, or of an error in a stream, which
// has a status too.
func refused(status int, body []byte, retryAfter string) *failure {
	f := explained(status, body, retryAfter)
	f.status = status
	return f
}

func explained(status int, body []byte, retryAfter string) *failure {
	said := message(body)
	if said == "" {
		said = http.StatusText(status)
	}
	switch {
	case status == http.StatusTooManyRequests:
		err := llm.Errorf(llm.RateLimited, "engine: %s", said)
		err.RetryAfter = retryAfter
		after, _ := strconv.Atoi(retryAfter) // a date is not waited for
		return &failure{err: err, retry: true, after: time.Duration(max(after, 0)) * time.Second}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &failure{err: llm.Errorf(llm.EngineFailed, "engine refused the service's own credential (%d): %s", status, said)}
	case isOverflow(said):
		return &failure{err: llm.Errorf(llm.ContextOverflow, "%s", said)}
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		return &failure{err: llm.Errorf(llm.BadRequest, "%s", said)}
	}
	return &failure{err: llm.Errorf(llm.EngineFailed, "engine answered %d: %s", status, said), retry: true}
}

// isOverflow knows the words in which engines say that a prompt is too long.
func isOverflow(said string) bool {
	said = strings.ToLower(said)
	for _, words := range []string{
		"maximum context length", "context_length_exceeded", "maximum model length", // vLLM, OpenAI
		"longer than the model's context length", // SGLang
		"exceeds the available context size",     // llama.cpp
	} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// maxMessageBytes bounds what is passed on of an error that is not JSON, such
// as a proxy's page.
const maxMessageBytes = 512

// message finds what an error body says, in the shapes vLLM and what may stand
// before it use.
func message(body []byte) string {
	o, err := rawjson.ParseObject(body)
	if err != nil {
		text := strings.TrimSpace(string(body))
		return strings.ToValidUTF8(text[:min(len(text), maxMessageBytes)], "")
	}
	if inner, err := rawjson.ParseObject(o.Get("error")); err == nil {
		o = inner
	}
	for _, key := range []string{"message", "detail", "error"} {
		if raw := o.Get(key); !rawjson.IsNull(raw) {
			if s, err := rawjson.String(raw); err == nil {
				return s
			}
			return string(raw[:min(len(raw), maxMessageBytes)])
		}
	}
	return ""
}

// brokenStream makes a failure of an error that the engine sent as an event.
func brokenStream(value []byte) *failure {
	status := http.StatusInternalServerError
	if o, err := rawjson.ParseObject(value); err == nil {
		if code, err := rawjson.Int(o.Get("code")); err == nil && code >= 400 && code < 600 {
			status = code
		}
	}
	return refused(status, fmt.Appendf(nil, `{"error":%s}`, value), "")
}
