package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/calllog"
	"polar/gateway"
	"polar/sim"
	"polar/trajectory"
)

// sessionFile is a harness: the kinds of conversation it has, and sessions that
// are made of them.
type sessionFile struct {
	Harness     string            `yaml:"harness"`
	Instruction string            `yaml:"instruction"`
	Talks       map[string]talk   `yaml:"talks"`
	Sessions    map[string]golden `yaml:"sessions"`
}

// talk is one kind of conversation: what every request of it has, and what it
// opens with. {{name}} in a text is what was last said in that conversation.
type talk struct {
	// Like is the talk whose headers and body it has too.
	Like string `yaml:"like"`
	// Extends is the talk whose history it goes on from.
	Extends string            `yaml:"extends"`
	Model   string            `yaml:"model"`
	Whole   bool              `yaml:"whole"` // is asked for in one piece, not streamed
	Headers map[string]string `yaml:"headers"`
	Body    obj               `yaml:"body"`
	Opening []any             `yaml:"opening"`
}

// golden is a session: what is said in which conversation, and what must
// come of it.
type golden struct {
	Steps []step `yaml:"steps"`
	// Noncanonical is the share of words that the engine samples with other
	// tokens than its tokenizer would give them.
	Noncanonical float64 `yaml:"noncanonical"`
	// Traces are role/segment, split reason, parent and calls of each.
	Traces []string `yaml:"traces"`
	// Drift says that answers came back other than sampled.
	Drift bool `yaml:"drift"`
	// Abandoned says that sampled tokens never arrived.
	Abandoned bool `yaml:"abandoned"`
	Retries   int  `yaml:"retries"`
}

// step is a call: what the engine answers and what the tools then return.
type step struct {
	In      string     `yaml:"in"`
	Think   string     `yaml:"think"`
	Say     string     `yaml:"say"`
	Call    []sim.Call `yaml:"call"`
	Results []string   `yaml:"results"`
	// Cut breaks the first answer off after so many tokens; the harness asks
	// again, unstreamed if it is one that does.
	Cut      int  `yaml:"cut"`
	CutToOne bool `yaml:"cut_to_one_piece"`
	// Repeat has the harness ask again for an answer that it lost.
	Repeat bool `yaml:"repeat"`
	// Then is added to the history after the results.
	Then []any `yaml:"then"`
}

// talking is a conversation under way.
type talking struct {
	talk
	history []any
	said    string
}

// TestGoldenSessions drives conversations as the real harnesses shape them
// through the gateway against the simulated engine. What the engine really
// answers goes back as that harness sends it back.
func TestGoldenSessions(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/sessions/*.yaml")
	if err != nil || len(paths) != len(manners()) {
		t.Fatalf("%d files for %d harnesses, %v", len(paths), len(manners()), err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file sessionFile
		if err := yaml.UnmarshalWithOptions(raw, &file, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for name, want := range file.Sessions {
			t.Run(file.Harness+", "+name, func(t *testing.T) {
				t.Parallel()
				d := newDriver(t, file, want.Noncanonical)
				for i, s := range want.Steps {
					d.step(i, s)
				}
				d.check(want)
			})
		}
	}
}

// driver is a harness with a gateway and an engine of its own. For every step
// there is a new engine, which has that step's answer.
type driver struct {
	*testing.T
	file         sessionFile
	noncanonical float64
	manner       manner
	wire         wire
	talks        map[string]*talking
	gateway      *gateway.Gateway
	url          string
	engine       atomic.Pointer[sim.Server]
	used         []*sim.Server
}

const sessionKey = "golden"

func newDriver(t *testing.T, file sessionFile, noncanonical float64) *driver {
	t.Helper()
	d := &driver{T: t, file: file, noncanonical: noncanonical, talks: map[string]*talking{}}
	var known bool
	if d.manner, known = manners()[file.Harness]; !known {
		t.Fatalf("no manner of %s", file.Harness)
	}
	for _, w := range matrixWires() {
		if w.name == d.manner.wire {
			d.wire = w
		}
	}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.engine.Load().ServeHTTP(w, r) }))
	t.Cleanup(back.Close)
	kinds := builtin("", nil)
	engine, err := kinds.engines.Open(polar.Spec{Kind: "vllm", Config: json.RawMessage(fmt.Sprintf(`{"url":%q}`, back.URL))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	calls, err := calllog.Open(calllog.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = calls.Close() })
	d.gateway, err = gateway.New(gateway.Config{
		Protocols: kinds.protocols, Backend: engine, Log: slog.New(slog.DiscardHandler),
		OpenLog: func(id polar.SessionID, attempt int) (gateway.SessionLog, error) { return calls.Session(id, attempt) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.gateway.Open(t.Context(), polar.Recording{Session: "golden.0", Attempt: 1, Key: sessionKey, Version: "7"}); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(d.gateway)
	t.Cleanup(front.Close)
	d.url = front.URL
	return d
}

// answer lets the engine say what the step has.
func (d *driver) answer(number int, s step) {
	d.Helper()
	cfg := sim.Defaults()
	cfg.Seed, cfg.Noncanonical = uint64(number+1), d.noncanonical
	action := sim.Action{Call: s.Call}
	if s.Say != "" {
		action.Say = sim.Texts{s.Say}
	}
	if s.Think != "" {
		action.Think = sim.Texts{s.Think}
	}
	cfg.Rules = []sim.Rule{{Action: action}}
	if s.Cut > 0 {
		cfg.Faults = []sim.Fault{{Kind: sim.FaultCut, AfterTokens: s.Cut, Calls: []int{1}}}
	}
	engine, err := sim.New(cfg)
	if err != nil {
		d.Fatal(err)
	}
	d.engine.Store(engine)
	d.used = append(d.used, engine)
}

// begin is the conversation of that name, opened when it is first spoken in.
func (d *driver) begin(name string) *talking {
	d.Helper()
	if t := d.talks[name]; t != nil {
		return t
	}
	kind, known := d.file.Talks[name]
	if !known {
		d.Fatalf("no talk %s", name)
	}
	t := &talking{talk: kind}
	if kind.Like != "" {
		like := d.file.Talks[kind.Like]
		t.Headers, t.Body = maps.Clone(like.Headers), maps.Clone(like.Body)
		if t.Headers == nil {
			t.Headers = map[string]string{}
		}
		maps.Copy(t.Headers, kind.Headers)
		for key, value := range kind.Body {
			if t.Body[key] = value; value == nil {
				delete(t.Body, key)
			}
		}
		if t.Model == "" {
			t.Model = like.Model
		}
	}
	if kind.Extends != "" {
		t.history = slices.Clone(d.talks[kind.Extends].history)
	}
	t.history = d.grow(t.history, kind.Opening)
	d.talks[name] = t
	return t
}

// grow adds to a history. Claude Code has no two messages of a user in a row.
func (d *driver) grow(history, add []any) []any {
	for _, item := range add {
		if n := len(history); n > 0 && d.file.Harness == "claude-code" && str(item, "role") == "user" && str(history[n-1], "role") == "user" {
			last := maps.Clone(history[n-1].(obj))
			last["content"] = slices.Concat(list(last, "content"), list(item, "content"))
			history = append(slices.Clip(history[:n-1]), last)
			continue
		}
		history = append(slices.Clip(history), item)
	}
	return history
}

// filled is a value with what was said elsewhere in its texts.
func (d *driver) filled(v any) any {
	switch v := v.(type) {
	case string:
		for name, t := range d.talks {
			v = strings.ReplaceAll(v, "{{"+name+"}}", t.said)
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = d.filled(v[i])
		}
		return out
	case obj:
		out := obj{}
		for key := range v {
			out[key] = d.filled(v[key])
		}
		return out
	}
	return v
}

// step makes a call and sends back, with the next, what a harness would.
func (d *driver) step(number int, s step) {
	d.Helper()
	t := d.begin(s.In)
	t.history = d.filled(t.history).([]any)
	d.answer(number, s)
	stream := !t.Whole
	if s.Cut > 0 {
		if status, body := d.send(t, stream, ""); status == http.StatusOK && strings.Contains(body, s.Say) && s.Say != "" {
			d.Fatalf("step %d was not cut: %s", number, body)
		}
		stream = stream && !s.CutToOne
	}
	first := d.read(t, stream, "")
	if want := (said{Text: s.Say, Reasoning: s.Think, Calls: calls(s.Call)}); !sameSaid(want, first.said) {
		d.Fatalf("step %d: read %+v, want %+v", number, first.said, want)
	}
	if s.Repeat {
		if again := d.read(t, stream, "1"); !sameSaid(first.said, again.said) {
			d.Fatalf("step %d: asked again and read %+v", number, again.said)
		}
	}
	t.said = first.Text
	t.history = d.grow(append(slices.Clip(t.history), d.manner.back(first, s.Results)...), s.Then)
}

func calls(list []sim.Call) []saidCall {
	var out []saidCall
	for _, c := range list {
		out = append(out, saidCall{c.Tool, c.Arguments})
	}
	return out
}

// sameSaid compares arguments as JSON, since two wires have them as objects. A
// namespace of Codex's is not part of the name that it reads.
func sameSaid(a, b said) bool {
	if a.Text != b.Text || a.Reasoning != b.Reasoning || len(a.Calls) != len(b.Calls) {
		return false
	}
	for i := range a.Calls {
		var x, y any
		if json.Unmarshal([]byte(a.Calls[i].Arguments), &x) != nil || json.Unmarshal([]byte(b.Calls[i].Arguments), &y) != nil {
			return false
		}
		if !cmp.Equal(x, y) || !strings.HasSuffix(a.Calls[i].Name, b.Calls[i].Name) {
			return false
		}
	}
	return true
}

func (d *driver) read(t *talking, stream bool, retry string) reading {
	d.Helper()
	status, body := d.send(t, stream, retry)
	if status != http.StatusOK {
		d.Fatalf("%d %s", status, body)
	}
	return d.wire.read(documents(d.T, body, stream), stream)
}

func (d *driver) send(t *talking, stream bool, retry string) (status int, answer string) {
	d.Helper()
	body := maps.Clone(t.Body)
	body[d.manner.history] = t.history
	if d.manner.wire != "gemini" {
		body["model"] = t.Model
		if stream {
			body["stream"] = true
		}
	}
	asked := written(body)
	if _, left, found := strings.Cut(asked, "{{"); found {
		d.Fatalf("nobody said {{%.20s", left)
	}
	path := d.url + "/s/" + sessionKey + d.manner.path(t.Model, stream)
	req, err := http.NewRequestWithContext(d.Context(), http.MethodPost, path, strings.NewReader(asked))
	if err != nil {
		d.Fatal(err)
	}
	for name, value := range t.Headers {
		req.Header.Set(name, value)
	}
	if retry != "" {
		req.Header.Set("X-Stainless-Retry-Count", retry)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, string(data) // it was cut
	}
	return resp.StatusCode, string(data)
}

// check builds the trajectory of the session and holds it against what is
// wanted, what the engine sampled, and the invariants.
func (d *driver) check(want golden) {
	d.Helper()
	calls, err := d.gateway.Close(d.Context(), sessionKey)
	if err != nil {
		d.Fatal(err)
	}
	record := trajectory.Record{Instruction: d.file.Instruction, Calls: calls}
	const everyRole = `"train_roles":["main","subagent","compaction","auxiliary"]`
	for _, config := range []string{`{"drift":"split",` + everyRole + `}`, `{}`, `{` + everyRole + `}`} {
		build, err := builtin("", nil).builders.Open(polar.Spec{Kind: "prefix_merging", Config: json.RawMessage(config)})
		if err != nil {
			d.Fatal(err)
		}
		tr, err := build(record)
		if err != nil {
			d.Fatal(err)
		}
		result := polar.Result{Session: "golden.0", Status: polar.Completed, Trajectory: tr}
		for violation := range trajectory.Violations(result, calls) {
			d.Errorf("%s: %v", config, violation.Error())
		}
		if err := trajectory.Rebuild(result, build, record); err != nil {
			d.Errorf("%s: %v", config, err)
		}
		if strings.Contains(config, everyRole) {
			d.allTrained(config, tr)
		}
		if config == `{`+everyRole+`}` {
			d.checkShape(want, tr, calls)
		}
	}
}

// allTrained checks that every token the engine finished an answer with is
// trained on.
func (d *driver) allTrained(config string, tr polar.Trajectory) {
	d.Helper()
	sampled, trained := 0, polar.Result{Trajectory: tr}.Summary().Trainable
	for _, engine := range d.used {
		for _, c := range engine.Calls() {
			if c.Ended == sim.EndFinished {
				sampled += len(c.TokenIDs)
			}
		}
	}
	if trained != sampled || sampled == 0 {
		d.Errorf("%s: %d tokens are trained on, %d were delivered", config, trained, sampled)
	}
}

func (d *driver) checkShape(want golden, tr polar.Trajectory, calls []polar.Call) {
	d.Helper()
	var got []string
	drift, retries := 0, 0
	for _, t := range tr.Traces {
		line := fmt.Sprintf("%s/%d %s", t.Role, t.Segment, t.SplitReason)
		if t.ParentID != "" {
			line += " of " + string(t.ParentID)
		}
		got = append(got, line+": "+plural(len(t.Calls), "call"))
		drift += t.Drift.Turns
	}
	if diff := cmp.Diff(want.Traces, got); diff != "" {
		d.Errorf("traces (-want +got)\n%s", diff)
	}
	for _, c := range calls {
		retries += c.Retries
	}
	stats, err := readStats(&polar.Result{Trajectory: tr})
	if err != nil {
		d.Fatal(err)
	}
	if (drift > 0) != want.Drift || (stats.Stats.Abandoned > 0) != want.Abandoned || retries != want.Retries {
		d.Errorf("drift in %d turns, %d tokens abandoned, %d retries; want %v, %v, %d",
			drift, stats.Stats.Abandoned, retries, want.Drift, want.Abandoned, want.Retries)
	}
}
