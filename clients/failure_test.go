package clients_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/polartest"
)

// words are the status, type, code and a piece of the message.
type words struct {
	status     int
	typ, code  string
	message    string
	retryAfter string
}

// fine is a question that has an answer, if nothing is in its way.
const fine = "say text"

// failures are the kinds of error that a harness can meet.
func failures() map[string]func(trial) {
	return map[string]func(trial){
		"a bad request": refused(func(l *lab) *rig { return l.talk }, question{Text: fine, MaxTokens: -1}, "bad_request", map[string]words{
			"chat":      {400, "invalid_request_error", "", "max_completion_tokens", ""},
			"responses": {400, "invalid_request_error", "", "max_output_tokens", ""},
			"anthropic": {400, "invalid_request_error", "", "max_tokens", ""},
			"gemini":    {400, "INVALID_ARGUMENT", "", "maxOutputTokens", ""},
		}),
		"a context that is too long": refused(func(l *lab) *rig { return l.talk }, question{Text: fine + strings.Repeat(" bo", 7000)}, "context_overflow", map[string]words{
			"chat":      {400, "invalid_request_error", "context_length_exceeded", "maximum context length is 6000", ""},
			"responses": {400, "invalid_request_error", "context_length_exceeded", "maximum context length is 6000", ""},
			"anthropic": {400, "invalid_request_error", "", "prompt is too long: ", ""},
			"gemini":    {400, "INVALID_ARGUMENT", "", "exceeds the maximum number of tokens allowed (6000)", ""},
		}),
		"a body that is too large": tooLarge,
		"a limited engine": refused(func(l *lab) *rig { return l.limited }, question{Text: fine}, "rate_limited", map[string]words{
			"chat":      {429, "rate_limit_error", "rate_limit_exceeded", "simulated fault", "7"},
			"responses": {429, "rate_limit_error", "rate_limit_exceeded", "simulated fault", "7"},
			"anthropic": {429, "rate_limit_error", "", "simulated fault", "7"},
			"gemini":    {429, "RESOURCE_EXHAUSTED", "", "simulated fault", ""},
		}),
		"an engine that fails": refused(func(l *lab) *rig { return l.broken }, question{Text: fine}, "engine_failed", engineFailed("500")),
		"no engine":            refused(func(l *lab) *rig { return l.down }, question{Text: fine}, "engine_failed", engineFailed("engine")),
		"an engine that breaks off": func(t trial) {
			k := t.start(t.lab.cut)
			got, err := k.ask(t.Context(), question{Text: t.said(fine)})
			if err == nil {
				t.Errorf("the client took what it got for the whole answer: %+v", got)
			}
			if rec := k.session.last(t.T, 1); rec.Delivered || rec.Error == nil || rec.Error.Kind != "engine_failed" {
				t.Errorf("recorded as %+v, delivered %v", rec.Error, rec.Delivered)
			}
			if !t.stream {
				checkRefusal(t.T, err, engineFailed("engine")[t.client.wire])
			}
		},
		"a key that nobody has": func(t trial) {
			_, err := t.client.open(t.T, endpoint{URL: t.lab.talk.gateway, Key: "sk-nobody", Stream: t.stream}).ask(t.Context(), question{Text: fine})
			checkRefusal(t.T, err, map[string]words{
				"chat":      {401, "invalid_request_error", "invalid_api_key", "key", ""},
				"responses": {401, "invalid_request_error", "invalid_api_key", "key", ""},
				"anthropic": {401, "authentication_error", "", "key", ""},
				"gemini":    {401, "UNAUTHENTICATED", "", "key", ""},
			}[t.client.wire])
		},
		"a session that has ended": func(t trial) {
			k := t.start(t.lab.talk)
			polartest.Request(t.T, http.MethodDelete, t.lab.talk.gateway+"/sessions/"+k.session.ID, nil, nil)
			_, err := k.ask(t.Context(), question{Text: fine})
			checkRefusal(t.T, err, map[string]words{
				"chat":      {403, "invalid_request_error", "session_ended", "ended", ""},
				"responses": {403, "invalid_request_error", "session_ended", "ended", ""},
				"anthropic": {403, "permission_error", "", "ended", ""},
				"gemini":    {403, "PERMISSION_DENIED", "", "ended", ""},
			}[t.client.wire])
		},
		"a budget that is spent": overBudget,
	}
}

// refused asks one of the services and expects a refusal that is recorded as
// the kind.
func refused(pick func(*lab) *rig, q question, kind string, want map[string]words) func(trial) {
	return func(t trial) {
		k := t.start(pick(t.lab))
		q.Text = t.said(q.Text)
		_, err := k.ask(t.Context(), q)
		checkRefusal(t.T, err, want[t.client.wire])
		if rec := k.session.last(t.T, 1); rec.Delivered || rec.Error == nil || rec.Error.Kind != kind || rec.Error.Status != want[t.client.wire].status {
			t.Errorf("recorded as %+v, delivered %v, want the kind %s", rec.Error, rec.Delivered, kind)
		}
	}
}

// tooLarge sends more than the 64 MiB that a body may have, one client at a
// time: each has it in memory several times.
func tooLarge(t trial) {
	if t.stream {
		return // the body is refused before it is known what it asks for
	}
	t.lab.large.Lock()
	defer t.lab.large.Unlock()
	refused(func(l *lab) *rig { return l.talk }, question{Text: fine + strings.Repeat("0123456789abcdef", 4<<20+1)}, "too_large", map[string]words{
		"chat":      {413, "invalid_request_error", "request_too_large", "larger than", ""},
		"responses": {413, "invalid_request_error", "request_too_large", "larger than", ""},
		"anthropic": {413, "request_too_large", "", "larger than", ""},
		"gemini":    {413, "INVALID_ARGUMENT", "", "larger than", ""},
	})(t)
}

func engineFailed(message string) map[string]words {
	return map[string]words{
		"chat":      {503, "server_error", "engine_failed", message, "1"},
		"responses": {503, "server_error", "engine_failed", message, "1"},
		"anthropic": {503, "api_error", "", message, ""},
		"gemini":    {503, "UNAVAILABLE", "", message, ""},
	}
}

// overBudget runs a task whose harness hands its key out and waits until that
// is gone: budgets are the tasks' own. The client is left to retry as it likes, and must not.
func overBudget(t trial) {
	dir := t.TempDir()
	task := "budget-" + strings.NewReplacer("/", "-", "@", "").Replace(t.Name())
	polartest.Request(t.T, http.MethodPost, t.lab.talk.rollout+"/rollout/task/submit", map[string]any{
		"task_id": task, "instruction": "Hand out the key.", "budget": map[string]any{"max_calls": 1},
		"agent": map[string]any{"harness": "shell", "custom_shell": map[string]any{
			"command": `printf '%s %s' "$SESSION_ID" "$OPENAI_API_KEY" > "$OUT/new" && mv "$OUT/new" "$OUT/key" && while [ -e "$OUT/key" ]; do sleep 0.05; done`,
			"env":     map[string]string{"OUT": dir},
		}},
		"evaluator": map[string]any{"strategy": "session_completed"},
	}, nil)
	s := &session{rig: t.lab.talk}
	polartest.Eventually(t.T, func() string {
		data, err := os.ReadFile(filepath.Join(dir, "key"))
		if err != nil {
			return err.Error()
		}
		s.ID, s.Key, _ = strings.Cut(string(data), " ")
		return ""
	})
	k := s.talk(t.T, t.client, endpoint{Stream: t.stream, Retries: 2})
	got, err := k.ask(t.Context(), question{Text: t.said("say text")})
	k.check(t.T, got, err, answer{Text: plainText}, saidAll)
	_, err = k.ask(t.Context(), question{Text: "go on"})
	checkRefusal(t.T, err, map[string]words{
		"chat":      {429, "insufficient_quota", "insufficient_quota", "budget of 1 calls", ""},
		"responses": {429, "insufficient_quota", "insufficient_quota", "budget of 1 calls", ""},
		"anthropic": {429, "rate_limit_error", "", "budget of 1 calls", ""},
		"gemini":    {429, "RESOURCE_EXHAUSTED", "", "budget of 1 calls", ""},
	}[t.client.wire])
	if rec := k.session.last(t.T, 2); rec.Error == nil || rec.Error.Kind != "over_budget" {
		t.Errorf("recorded as %+v", rec.Error)
	}
}

func checkRefusal(t *testing.T, err error, want words) {
	t.Helper()
	var got *refusal
	if !errors.As(err, &got) {
		t.Fatalf("the client says %v (%T), want %+v", err, err, want)
	}
	if !strings.Contains(got.Message, want.message) {
		t.Errorf("the message is %q, want %q in it", got.Message, want.message)
	}
	flat := words{got.Status, got.Type, got.Code, want.message, got.RetryAfter}
	if diff := cmp.Diff(want, flat, cmp.AllowUnexported(words{})); diff != "" {
		t.Errorf("the client was told (-want +got):\n%s", diff)
	}
}
