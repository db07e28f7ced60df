package clients_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/polartest"
)

// What the simulated model says, as it stands in testdata/policy.yaml.
const (
	plainText = `Plain text: <b> & "quotes", back\slash, naïve café, 日本語, 👩‍🚀.`
	thought   = "First I weigh <this> & \"that\".\nThen I decide."
)

// weatherCall and timeCall are the tool calls the model makes.
func weatherCall() call {
	return call{Name: "get_weather", Arguments: `{"city": "Zürich", "days": 3, "exact": 1.50}`}
}

func timeCall() call { return call{Name: "get_time", Arguments: `{"zone": "<Europe/Zurich>"}`} }

// pixel is a PNG of one pixel in base64.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// How an answer ended, in the words of each format.
type ending int

const (
	saidAll ending = iota
	calledTools
	ranOut
)

func finishWord(wire string, e ending) string {
	return map[string][]string{
		"chat":      {"stop", "tool_calls", "length"},
		"responses": {"completed", "completed", "incomplete"},
		"anthropic": {"end_turn", "tool_use", "max_tokens"},
		"gemini":    {"STOP", "STOP", "MAX_TOKENS"},
	}[wire][e]
}

// talk is a conversation under way in a session of its own.
type talk struct {
	conversation
	client  client
	session *session
	stream  bool
	n       int // calls that were recorded
}

// talk points a client at the session.
func (s *session) talk(t *testing.T, c client, to endpoint) *talk {
	t.Helper()
	to.URL, to.Key = s.rig.gateway, s.Key
	return &talk{conversation: c.open(t, to), client: c, session: s, stream: to.Stream}
}

// check holds an answer against what the model said, what was recorded against
// the simulator, and returns the record.
func (k *talk) check(t *testing.T, got answer, err error, want answer, end ending) recorded {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	k.n++
	rec := k.session.last(t, k.n)
	k.session.rig.checkWhole(t, rec, got)
	if rec.Wire != k.client.wire || rec.Stream != k.stream || rec.Asked == "" || rec.Asked == modelServed {
		t.Errorf("recorded as a call of %s for %q, streamed %v", rec.Wire, rec.Asked, rec.Stream)
	}
	want.Finish = finishWord(k.client.wire, end)
	want.In, want.Out = len(rec.PromptIDs), len(rec.TokenIDs)
	ids := map[string]bool{}
	for i := range got.Calls {
		ids[got.Calls[i].ID] = true
		if i < len(want.Calls) {
			want.Calls[i].ID = got.Calls[i].ID
			if sameJSON(want.Calls[i].Arguments, got.Calls[i].Arguments) && k.client.showsObjects() {
				want.Calls[i].Arguments = got.Calls[i].Arguments
			}
		}
	}
	if ids[""] || len(ids) != len(got.Calls) {
		t.Errorf("the ids of the tool calls are not set or not different: %v", ids)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client read (-model +client):\n%s", diff)
	}
	return rec
}

// showsObjects reports whether the client shows arguments as an object, so that
// their spelling is its own.
func (c client) showsObjects() bool { return c.wire == "anthropic" || c.wire == "gemini" }

// scenarios are conversations that go well.
func scenarios() map[string]func(trial) {
	return map[string]func(trial){
		"text": func(t trial) {
			k := t.start(t.lab.talk)
			got, err := k.ask(t.Context(), question{Text: t.said("say text")})
			k.check(t.T, got, err, answer{Text: plainText}, saidAll)
		},
		"reasoning": func(t trial) {
			k := t.start(t.lab.talk)
			got, err := k.ask(t.Context(), question{Text: t.said("think then say")})
			k.check(t.T, got, err, answer{Reasoning: thought, Text: plainText}, saidAll)
			got, err = k.ask(t.Context(), question{Text: "go on"})
			k.check(t.T, got, err, answer{Text: "On it goes."}, saidAll)
			k.checkOneTrace(t.T)
		},
		"system prompt": func(t trial) {
			k := t.start(t.lab.talk)
			got, err := k.ask(t.Context(), question{System: "You say yes.", Text: t.said("obey")})
			k.check(t.T, got, err, answer{Text: "yes"}, saidAll)
			got, err = k.ask(t.Context(), question{Text: t.said("obey again")})
			k.check(t.T, got, err, answer{Text: "yes"}, saidAll)
			k.checkOneTrace(t.T)
		},
		"one tool call and its result":            oneTool,
		"two parallel tool calls and two results": twoTools,
		"turns that are named and not sent again": func(t trial) {
			if t.client.wire == "responses" {
				callTwoTools(t, t.lab.talk.openSession(t.T).talk(t.T, t.client, endpoint{Stream: t.stream, Previous: true}))
			}
		},
		"an image": func(t trial) {
			k := t.start(t.lab.talk)
			got, err := k.ask(t.Context(), question{Text: t.said("look at the image"), Image: pixel})
			rec := k.check(t.T, got, err, answer{Text: "A single pixel."}, saidAll)
			if content := string(rec.Messages[len(rec.Messages)-1].Content); strings.Count(content, "data:image/png;base64,"+pixel) != 1 {
				t.Errorf("the engine was not given the image once: %s", content)
			}
		},
		"an answer that is cut at its bound": func(t trial) {
			k := t.start(t.lab.talk)
			got, err := k.ask(t.Context(), question{Text: t.said("talk at length"), MaxTokens: 5})
			k.check(t.T, got, err, answer{Text: got.Text}, ranOut)
			if got.Out != 5 || got.Text == "" {
				t.Errorf("%d tokens and the text %q", got.Out, got.Text)
			}
		},
		"tokens counted": func(t trial) {
			if t.client.wire == "chat" {
				return // the format has no such call
			}
			k := t.start(t.lab.talk)
			q, want := question{System: "You say yes.", Text: t.said("obey"), Tools: true}, "yes"
			if t.client.wire == "gemini" { // whose clients refuse to count more than a text
				q, want = question{Text: t.said("say text")}, plainText
			}
			n, err := k.count(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.ask(t.Context(), q)
			rec := k.check(t.T, got, err, answer{Text: want}, saidAll) // which is the only call recorded
			if n != len(rec.PromptIDs) {
				t.Errorf("counted %d tokens, the prompt has %d", n, len(rec.PromptIDs))
			}
		},
		"models listed": func(t trial) {
			names, err := t.start(t.lab.talk).models(t.Context())
			if err != nil || !slices.Equal(names, []string{modelServed}) {
				t.Errorf("got %q, %v", names, err)
			}
		},
	}
}

func oneTool(t trial) {
	k := t.start(t.lab.talk)
	got, err := k.ask(t.Context(), question{Text: t.said("call one tool"), Tools: true})
	k.check(t.T, got, err, answer{Calls: []call{weatherCall()}}, calledTools)
	got, err = k.give(t.Context(), []string{"21 °C & <dry>"})
	result := k.toolResults(t.T, 1)[0]
	k.check(t.T, got, err, answer{Text: "The tool said: " + result}, saidAll)
	checkResult(t.T, t.client, result, "21 °C & <dry>")
	k.checkOneTrace(t.T)
}

func twoTools(t trial) {
	callTwoTools(t, t.start(t.lab.talk))
}

func callTwoTools(t trial, k *talk) {
	got, err := k.ask(t.Context(), question{Text: t.said("call two tools"), Tools: true})
	k.check(t.T, got, err, answer{Reasoning: thought, Text: "I look at both.", Calls: []call{weatherCall(), timeCall()}}, calledTools)
	got, err = k.give(t.Context(), []string{"rain", "noon"})
	results := k.toolResults(t.T, 2)
	k.check(t.T, got, err, answer{Reasoning: "Both tools answered.", Text: "The last tool said: " + results[1]}, saidAll)
	checkResult(t.T, t.client, results[0], "rain")
	checkResult(t.T, t.client, results[1], "noon")
	got, err = k.ask(t.Context(), question{Text: "go on"})
	k.check(t.T, got, err, answer{Text: "On it goes."}, saidAll)
	k.checkOneTrace(t.T)
}

// checkResult compares what the model was told of a tool. Gemini's results are
// objects, and go to it as the client wrote them.
func checkResult(t *testing.T, c client, got, want string) {
	t.Helper()
	if c.wire == "gemini" && sameJSON(got, fmt.Sprintf(`{"output": %q}`, want)) {
		return
	}
	if got != want {
		t.Errorf("the model was given the result %q of a tool, want %q", got, want)
	}
}

// toolResults are the results of tools in the newest call, as the engine was
// given them.
func (k *talk) toolResults(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for _, m := range k.session.last(t, k.n+1).Messages {
		if m.Role == "tool" {
			out = append(out, extraText(string(m.Content)))
		}
	}
	if len(out) != n {
		t.Fatalf("the engine was given the tool results %q, want %d", out, n)
	}
	return out
}

// checkOneTrace fails unless the calls are one conversation that only grew: the
// client sent back what it was given, and the wire lost nothing of it.
func (k *talk) checkOneTrace(t *testing.T) {
	t.Helper()
	var trajectory struct {
		Traces []struct {
			Calls []string `json:"call_ids"`
		} `json:"traces"`
	}
	polartest.Request(t, http.MethodGet, k.session.rig.gateway+"/sessions/"+k.session.ID+"/trajectory?strategy=prefix_merging", nil, &trajectory)
	if len(trajectory.Traces) != 1 || len(trajectory.Traces[0].Calls) != k.n {
		t.Errorf("%d calls became %d traces: %+v", k.n, len(trajectory.Traces), trajectory.Traces)
	}
}

// streamScenarios are what can only be seen of a stream.
func streamScenarios() map[string]func(trial) {
	return map[string]func(trial){
		"an engine that is silent for longer than signs of life are": func(t trial) {
			k := t.start(t.lab.silent)
			got, err := k.ask(t.Context(), question{Text: t.said("think then say")})
			k.check(t.T, got, err, answer{Reasoning: thought, Text: plainText}, saidAll)
		},
		"a client that leaves in the middle": leaveInTheMiddle,
	}
}

func leaveInTheMiddle(t trial) {
	k := t.start(t.lab.slow)
	got, err := k.ask(t.Context(), question{Text: t.said("talk at length"), LeaveAfter: 5})
	if err != nil {
		t.Fatal(err)
	}
	var rec recorded
	polartest.Eventually(t.T, func() string {
		calls := k.session.calls(t.T)
		if len(calls) != 1 {
			return fmt.Sprintf("%d calls are recorded, want 1", len(calls))
		}
		rec = calls[0]
		return ""
	})
	whole := t.lab.slow.claim(t.T, rec)
	sampled := whole.tokens(t.T)
	switch {
	case rec.Delivered:
		t.Error("the call is marked as delivered")
	case rec.Finish != "abort":
		t.Errorf("the call finished with %q", rec.Finish)
	case len(rec.TokenIDs) < 5 || len(rec.TokenIDs) >= len(sampled) || !slices.Equal(rec.TokenIDs, sampled[:len(rec.TokenIDs)]):
		t.Errorf("%d tokens are recorded, which are not the first of the %d sampled", len(rec.TokenIDs), len(sampled))
	case got.Text == "":
		t.Error("the client read nothing")
	}
	polartest.Eventually(t.T, func() string {
		for _, s := range t.lab.slow.simCalls(t.T) {
			if s.Number == whole.Number && s.Ended == "aborted" {
				if !strings.HasPrefix(s.Text, got.Text) {
					t.Errorf("the client read %q, the engine said %q", got.Text, s.Text)
				}
				return ""
			}
		}
		return "the engine still works on the answer that nobody reads"
	})
}
