package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/backend"
	"polar/calllog"
	"polar/gateway"
	"polar/llm"
	"polar/sim"
)

// said is what an engine says and a harness reads.
type said struct {
	Text, Reasoning string
	Calls           []saidCall
}

type saidCall struct{ Name, Arguments string }

// scenarios are what is asked for and what the engine then says.
var scenarios = map[string]said{
	"text":           {Text: "One \"line\" <of> text,\nand é 😀 of another."},
	"reasoning":      {Text: "So it is 4.", Reasoning: "Two and two\nare <four>: \"4\"."},
	"tools":          {Text: "I look.", Calls: []saidCall{{"look", `{"at":"a <b> \"c\"","depth":2}`}}},
	"parallel tools": {Reasoning: "Both at once.", Calls: []saidCall{{"look", `{"at":"é"}`}, {"list", `{}`}}},
}

const goOn = "And now?"

// engineRow is an inference server of the matrix.
type engineRow struct {
	kind string
	sim  func(*sim.Config)
	// noIDs is set for a server whose answers have no ids.
	noIDs bool
}

func sglangStyle(style string) func(*sim.Config) {
	return func(c *sim.Config) { c.Engine, c.SGLangStyle = sim.EngineSGLang, style }
}

var engineRows = map[string]engineRow{
	"vllm":                  {"vllm", func(*sim.Config) {}, false},
	"vllm, chunks of 3":     {"vllm", func(c *sim.Config) { c.ChunkTokens = 3 }, false},
	"sglang v0.5.10":        {"sglang", sglangStyle("v0.5.10"), true},
	"sglang v0.5.12":        {"sglang", sglangStyle("v0.5.12"), false},
	"sglang v0.5.13":        {"sglang", sglangStyle("v0.5.13"), false},
	"sglang v0.5.17":        {"sglang", sglangStyle("v0.5.17"), false},
	"sglang v0.5.18":        {"sglang", sglangStyle("v0.5.18"), false},
	"sglang next":           {"sglang", sglangStyle("next"), false},
	"sglang, incrementally": {"sglang", func(c *sim.Config) { sglangStyle("v0.5.12")(c); c.IncrementalStreaming = true }, false},
	"openai":                {"openai", func(*sim.Config) {}, true},
}

// TestMatrix takes two turns of a conversation over every wire, engine and way
// of answering. What the harness reads is what the engine said, what is
// recorded is what the engine sampled, token for token, and what the harness
// sends back gives a prompt that only grew.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for engineName, row := range engineRows {
		t.Run(engineName, func(t *testing.T) {
			t.Parallel()
			m := newMatrixRig(t, row)
			for _, wire := range matrixWires() {
				for scenario, want := range scenarios {
					for _, stream := range []bool{false, true} {
						name := fmt.Sprintf("%s, %s, streamed %v", wire.name, scenario, stream)
						t.Run(name, func(t *testing.T) { m.converse(t, wire, scenario, want, stream) })
					}
				}
			}
		})
	}
}

// matrixRig is a gateway before one simulated engine.
type matrixRig struct {
	row     engineRow
	sim     *sim.Server
	gateway *gateway.Gateway
	url     string
	opened  int
}

func newMatrixRig(t *testing.T, row engineRow) *matrixRig {
	t.Helper()
	cfg := sim.Defaults()
	row.sim(&cfg)
	for name, s := range scenarios {
		action := sim.Action{}
		for text, into := range map[string]*sim.Texts{s.Text: &action.Say, s.Reasoning: &action.Think} {
			if text != "" {
				*into = sim.Texts{text}
			}
		}
		for _, call := range s.Calls {
			action.Call = append(action.Call, sim.Call{Tool: call.Name, Arguments: call.Arguments})
		}
		none := 0
		cfg.Rules = append(cfg.Rules, sim.Rule{When: sim.When{User: "^" + name + "$", ToolResults: &none}, Action: action})
	}
	cfg.Rules = append(cfg.Rules, sim.Rule{Action: sim.Action{Say: sim.Texts{"Done."}}})
	m := &matrixRig{row: row}
	var err error
	if m.sim, err = sim.New(cfg); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(m.sim)
	t.Cleanup(server.Close)
	kinds := builtin("", nil)
	settings, err := json.Marshal(map[string]string{"url": server.URL})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := kinds.engines.Open(polar.Spec{Kind: row.kind, Config: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	if row.kind != "openai" {
		probe(t, engine, row.noIDs)
	}
	calls, err := calllog.Open(calllog.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = calls.Close() })
	m.gateway, err = gateway.New(gateway.Config{
		Protocols: kinds.protocols, Backend: engine, Log: slog.New(slog.DiscardHandler),
		OpenLog: func(id polar.SessionID, attempt int) (gateway.SessionLog, error) { return calls.Session(id, attempt) },
	})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(m.gateway)
	t.Cleanup(front.Close)
	m.url = front.URL
	return m
}

// probe finds out how the engine is to be asked, as a service does at its start.
func probe(t *testing.T, engine backend.Engine, noIDs bool) {
	t.Helper()
	found, err := engine.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if (found.Missing() != "") != noIDs {
		t.Fatalf("missing %q", found.Missing())
	}
	// What is left to find out is found out with the first call.
	hello := llm.Request{Messages: []llm.Message{{Role: "user", Content: json.RawMessage(`"Hello"`)}}}
	if _, err := llm.Collect(engine.Generate(t.Context(), hello)); err != nil {
		t.Fatal(err)
	}
}

// converse asks, reads the answer, sends it back with what its tools returned
// or another question, and compares the records of both sides.
func (m *matrixRig) converse(t *testing.T, w wire, scenario string, want said, stream bool) {
	t.Helper()
	m.opened++
	key := fmt.Sprintf("m%d", m.opened)
	if _, err := m.gateway.Open(t.Context(), polar.Recording{Session: polar.SessionID(key), Attempt: 1, Key: key}); err != nil {
		t.Fatal(err)
	}
	before := len(m.sim.Calls())
	history := []any{w.user(scenario)}
	first := w.read(m.post(t, key, w, history, stream), stream)
	if diff := cmp.Diff(want, first.said); diff != "" {
		t.Errorf("the harness read (-want +got)\n%s", diff)
	}
	history = append(history, first.echo...)
	if len(want.Calls) == 0 {
		history = append(history, w.user(goOn))
	}
	second := w.read(m.post(t, key, w, history, stream), stream)
	if diff := cmp.Diff(said{Text: "Done."}, second.said); diff != "" {
		t.Errorf("then the harness read (-want +got)\n%s", diff)
	}
	calls, err := m.gateway.Close(t.Context(), key)
	if err != nil || len(calls) != 2 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	sampled := m.sim.Calls()[before:]
	if len(sampled) != 2 {
		t.Fatalf("the engine was asked %d times", len(sampled))
	}
	for i, call := range calls {
		m.compare(t, w, call, sampled[i])
	}
	if m.row.noIDs {
		return
	}
	prompt, grown := append(calls[0].Prompt.IDs(), sampled[0].TokenIDs...), calls[1].Prompt.IDs()
	if !slices.Equal(prompt, grown[:min(len(prompt), len(grown))]) {
		t.Errorf("the second prompt is not the first one grown:\n%q\n%q", sim.Decode(prompt), sim.Decode(grown))
	}
}

// compare sets what was recorded beside what was sampled.
func (m *matrixRig) compare(t *testing.T, w wire, call polar.Call, sampled sim.Recorded) {
	t.Helper()
	if call.Wire != w.name || !call.Delivered || call.Error != nil || (call.Untrainable != "") != m.row.noIDs {
		t.Errorf("recorded %+v", call)
	}
	if sampled.Ended != sim.EndFinished {
		t.Errorf("the engine's side ended as %s", sampled.Ended)
	}
	if m.row.noIDs {
		return
	}
	ids, logprobs := llm.IDs{}, llm.Logprobs{}
	for _, token := range call.Sampled {
		ids, logprobs = append(ids, token.ID), append(logprobs, token.Logprob)
	}
	for _, diff := range []string{
		cmp.Diff(sampled.PromptIDs, call.Prompt.IDs()), cmp.Diff(sampled.TokenIDs, ids), cmp.Diff(sampled.Logprobs, logprobs),
	} {
		if diff != "" {
			t.Errorf("recorded (-sampled +recorded)\n%s", diff)
		}
	}
}

// post makes a call and returns the documents of the answer: one, or one for
// each event of a stream.
func (m *matrixRig) post(t *testing.T, key string, w wire, history []any, stream bool) []map[string]any {
	t.Helper()
	status, _, body := m.send(t, key, w, history, stream)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	for _, hidden := range []string{"token_ids", "prompt_ids"} {
		if strings.Contains(body, hidden) {
			t.Errorf("the harness is shown %s", hidden)
		}
	}
	return documents(t, body, stream)
}

// documents are the documents of an answer.
func documents(t *testing.T, body string, stream bool) []map[string]any {
	t.Helper()
	texts := []string{body}
	if stream {
		texts = texts[:0]
		for line := range strings.Lines(body) {
			if event, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && event != "[DONE]" {
				texts = append(texts, event)
			}
		}
	}
	docs := make([]map[string]any, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &docs[i]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return docs
}

func (m *matrixRig) send(t *testing.T, key string, w wire, history []any, stream bool) (status int, header http.Header, body string) {
	t.Helper()
	path, asked := w.request(history, stream)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+"/s/"+key+path, strings.NewReader(written(asked)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// TestEveryWireRefusesAlike makes calls that are not let through, over every
// wire: each is told so in its own words.
func TestEveryWireRefusesAlike(t *testing.T) {
	t.Parallel()
	m := newMatrixRig(t, engineRow{"vllm", func(c *sim.Config) { c.ContextLimit = 2000 }, false})
	open := func(key string, budget polar.Budget) {
		t.Helper()
		if _, err := m.gateway.Open(t.Context(), polar.Recording{Session: polar.SessionID(key), Key: key, Budget: budget}); err != nil {
			t.Fatal(err)
		}
	}
	open("ended", polar.Budget{})
	if _, err := m.gateway.Close(t.Context(), "ended"); err != nil {
		t.Fatal(err)
	}
	for _, w := range matrixWires() {
		spent, short, free := "spent-"+w.name, "short-"+w.name, "free-"+w.name
		open(spent, polar.Budget{MaxCalls: 1})
		open(short, polar.Budget{MaxContextTokens: 3})
		open(free, polar.Budget{})
		m.post(t, spent, w, []any{w.user("text")}, false)
		for _, stream := range []bool{false, true} {
			for name, tc := range map[string]struct {
				key, ask string
				status   int
				words    []string
			}{
				"unknown key":      {"unknown", "text", 401, []string{"invalid_api_key", "authentication_error", "UNAUTHENTICATED"}},
				"ended session":    {"ended", "text", 403, []string{"session_ended", "permission_error", "PERMISSION_DENIED"}},
				"spent budget":     {spent, "text", 429, []string{"insufficient_quota", "rate_limit_error", "RESOURCE_EXHAUSTED"}},
				"session's bound":  {short, "text", 400, []string{"context_length_exceeded", "prompt is too long", "INVALID_ARGUMENT"}},
				"engine's context": {free, strings.Repeat("word ", 3000), 400, []string{"context_length_exceeded", "prompt is too long", "INVALID_ARGUMENT"}},
			} {
				status, header, body := m.send(t, tc.key, w, []any{w.user(tc.ask)}, stream)
				known := slices.ContainsFunc(tc.words, func(word string) bool { return strings.Contains(body, word) })
				if status != tc.status || !known || header.Get("Retry-After") != "" {
					t.Errorf("%s, streamed %v: %s: %d %v %s", w.name, stream, name, status, header, body)
				}
			}
		}
		for key, want := range map[string]int{spent: 3, short: 2, free: 2} {
			if calls, err := m.gateway.Close(t.Context(), key); err != nil || len(calls) != want || calls[1].Error == nil {
				t.Errorf("%s: %d calls recorded, %v", key, len(calls), err)
			}
		}
	}
}

// TestAResponseGoesOnFromThePreviousOne sends only what is new, as a client
// of Responses may, and gets a prompt that only grew.
func TestAResponseGoesOnFromThePreviousOne(t *testing.T) {
	t.Parallel()
	m := newMatrixRig(t, engineRows["vllm"])
	if _, err := m.gateway.Open(t.Context(), polar.Recording{Session: "s", Attempt: 1, Key: "s"}); err != nil {
		t.Fatal(err)
	}
	w := matrixWires()[1]
	previous := ""
	request := w.request
	w.request = func(history []any, stream bool) (string, any) {
		path, body := request(history, stream)
		body.(obj)["instructions"] = "Be brief."
		if previous != "" {
			body.(obj)["previous_response_id"] = previous
		}
		return path, body
	}
	docs := m.post(t, "s", w, []any{w.user("parallel tools")}, false)
	first := w.read(docs, false)
	previous = str(docs[0], "id")
	second := w.read(m.post(t, "s", w, first.echo[len(first.echo)-2:], true), true)
	if second.Text != "Done." {
		t.Errorf("read %+v", second.said)
	}
	previous = "resp_call-000077"
	if status, _, body := m.send(t, "s", w, []any{w.user("text")}, false); status != 400 || !strings.Contains(body, `"param":"previous_response_id"`) {
		t.Errorf("an unknown answer: %d %s", status, body)
	}
	calls, err := m.gateway.Close(t.Context(), "s")
	if err != nil || len(calls) != 3 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	prompt := calls[0].Prompt.IDs()
	for _, token := range calls[0].Sampled {
		prompt = append(prompt, token.ID)
	}
	if grown := calls[1].Prompt.IDs(); len(grown) < len(prompt) || !slices.Equal(prompt, grown[:len(prompt)]) {
		t.Errorf("the second prompt is not the first one grown:\n%q\n%q", sim.Decode(prompt), sim.Decode(grown))
	}
}
