package backend_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"polar/backend"
	"polar/llm"
	"polar/sim"
)

// fake is an engine that answers with its own name, or fails.
type fake struct {
	name   string
	err    error // before anything is said
	broken error // after the first event
	asked  atomic.Int32
}

func (f *fake) Generate(context.Context, llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		f.asked.Add(1)
		if f.err != nil {
			yield(llm.Event{}, f.err)
			return
		}
		if !yield(llm.Event{Text: f.name}, nil) {
			return
		}
		if f.broken != nil {
			yield(llm.Event{}, f.broken)
			return
		}
		yield(llm.Event{Finish: llm.FinishStop}, nil)
	}
}

func (f *fake) Models(context.Context) ([]string, error) { return []string{"shared", f.name}, f.err }

func (f *fake) Probe(context.Context) (backend.Probe, error) {
	return backend.Probe{Engine: "fake", Model: "shared", PromptIDs: true, SampledIDs: f.broken == nil, Logprobs: true, MaxContext: len(f.name)}, f.err
}

func (f *fake) Health(context.Context) error { return f.err }
func (f *fake) Close() error                 { return f.broken }

func poolOf(tb testing.TB, fakes ...*fake) backend.Engine {
	tb.Helper()
	var list []backend.Weighted
	for _, f := range fakes {
		list = append(list, backend.Weighted{Name: f.name, Engine: f})
	}
	p, err := backend.NewPool(list)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// answers is who answers a call with an affinity.
func answers(tb testing.TB, p backend.Engine, affinity string) string {
	tb.Helper()
	reply, err := llm.Collect(p.Generate(tb.Context(), llm.Request{Affinity: affinity}))
	if err != nil {
		tb.Fatal(err)
	}
	return reply.Message.Text()
}

func TestSessionsStayWithTheirEngine(t *testing.T) {
	t.Parallel()
	a, b, c := &fake{name: "a"}, &fake{name: "b"}, &fake{name: "c"}
	three, two := poolOf(t, a, b, c), poolOf(t, a, c)
	share := map[string]int{}
	for i := range 300 {
		session := fmt.Sprint("session-", i)
		first := answers(t, three, session)
		if again := answers(t, three, session); again != first {
			t.Fatalf("%s went to %s and then to %s", session, first, again)
		}
		if without := answers(t, two, session); first != "b" && without != first {
			t.Errorf("%s moved from %s to %s when another engine left", session, first, without)
		}
		share[first]++
	}
	for name, n := range share {
		if n < 60 || n > 140 {
			t.Errorf("%s has %d of 300 sessions", name, n)
		}
	}
	if len(share) != 3 {
		t.Errorf("shares %v", share)
	}
}

func TestAnEngineGetsCallsByItsWeight(t *testing.T) {
	t.Parallel()
	small, large := &fake{name: "small"}, &fake{name: "large"}
	p, err := backend.NewPool([]backend.Weighted{{Name: "small", Engine: small}, {Name: "large", Engine: large, Weight: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for range 400 {
		answers(t, p, "")
	}
	if n := large.asked.Load(); n < 260 || n > 340 {
		t.Errorf("%d of 400 calls went to the engine with 3/4 of the weight", n)
	}
}

func TestAnEngineThatFailsIsReplacedAndAvoidedForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "a"}, &fake{name: "b"}
		p := poolOf(t, a, b)
		mine := a
		if answers(t, p, "s") == "b" {
			mine = b
		}
		mine.err = llm.Errorf(llm.EngineFailed, "down")
		for range 3 {
			if got := answers(t, p, "s"); got == mine.name {
				t.Errorf("%s answered", got)
			}
		}
		if n := mine.asked.Load(); n != 2 {
			t.Errorf("the engine that failed was asked %d times", n)
		}
		mine.err = nil
		<-time.After(6 * time.Second)
		if got := answers(t, p, "s"); got != mine.name {
			t.Errorf("the session did not come back from %s", got)
		}
	})
}

func TestWhatAPoolDoesNotTryElsewhere(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]*fake{
		"a bad request":            {name: "x", err: llm.Errorf(llm.BadRequest, "no")},
		"a prompt too long":        {name: "x", err: llm.Errorf(llm.ContextOverflow, "long")},
		"an answer that has begun": {name: "x", broken: llm.Errorf(llm.EngineFailed, "cut")},
	} {
		fine := &fake{name: "fine"}
		p, err := backend.NewPool([]backend.Weighted{{Name: "x", Engine: broken, Weight: 1e12}, {Name: "fine", Engine: fine}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := llm.Collect(p.Generate(t.Context(), llm.Request{Affinity: "s"})); err == nil || fine.asked.Load() != 0 {
			t.Errorf("%s: %v, the other was asked %d times", name, err, fine.asked.Load())
		}
	}
}

func TestAPoolThatFailsAsAWhole(t *testing.T) {
	t.Parallel()
	a, b := &fake{name: "a", err: llm.Errorf(llm.EngineFailed, "a down")}, &fake{name: "b", err: llm.Errorf(llm.EngineFailed, "b down")}
	p := poolOf(t, a, b)
	_, err := llm.Collect(p.Generate(t.Context(), llm.Request{Affinity: "s"}))
	if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.EngineFailed || a.asked.Load() != 1 || b.asked.Load() != 1 {
		t.Errorf("got %v after %d and %d", err, a.asked.Load(), b.asked.Load())
	}
	if _, err := p.Probe(t.Context()); err == nil {
		t.Error("a pool of which nothing answers was probed")
	}
	if _, err := p.Models(t.Context()); err == nil {
		t.Error("a pool of which nothing answers has models")
	}
	if err := p.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "a down") || !strings.Contains(err.Error(), "b down") {
		t.Errorf("health %v", err)
	}
}

func TestAPoolIsWhatAllOfItIs(t *testing.T) {
	t.Parallel()
	p := poolOf(t, &fake{name: "four"}, &fake{name: "one", broken: errors.New("closed badly")}, &fake{name: "down", err: errors.New("down")})
	got, err := p.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Engine != "pool" || got.Model != "shared" || got.Missing() != "sampled ids" || got.MaxContext != 3 || len(got.Endpoints) != 3 || got.Endpoints[2].Error != "down" {
		t.Errorf("probed %+v", got)
	}
	models, err := p.Models(t.Context())
	if err != nil || strings.Join(models, " ") != "shared four one" {
		t.Errorf("models %v, %v", models, err)
	}
	if err := p.Health(t.Context()); err != nil {
		t.Errorf("health %v", err)
	}
	if err := p.Close(); err == nil {
		t.Error("closing said nothing")
	}
}

func TestPoolsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]backend.Weighted{
		"none":              nil,
		"no engine":         {{Name: "a"}},
		"a negative weight": {{Name: "a", Engine: &fake{}, Weight: -1}},
		"a name twice":      {{Name: "a", Engine: &fake{}}, {Name: "a", Engine: &fake{}}},
	} {
		if p, err := backend.NewPool(list); err == nil {
			t.Errorf("%s: made %v", name, p)
		}
	}
}

// router serves a list of workers that can change.
type router struct {
	mu    sync.Mutex
	list  string
	asked int
}

func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.URL.Path {
	case "/workers":
		r.asked++
		fmt.Fprint(w, r.list)
	default:
		http.Error(w, `{"message":"asked the router"}`, http.StatusBadRequest)
	}
}

func TestTheWorkersOfARouterAreCalledDirectly(t *testing.T) {
	t.Parallel()
	one, oneURL := serve(t, "engine: sglang\nsglang_style: next")
	two, twoURL := serve(t, "engine: sglang\nsglang_style: v0.5.13")
	front, frontURL := serve(t, "engine: sglang\nworkers: ["+oneURL+", "+twoURL+"]")
	engine := openSGLang(t, backend.SGLangConfig{URL: frontURL})
	p, err := engine.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.Missing() != "" || p.Style != "mixed" || p.StreamsIDs != backend.StreamsNo || len(p.Endpoints) != 2 {
		t.Errorf("probed %+v", p)
	}
	before := len(one.Calls())
	for range 4 { // in turn
		if _, err := llm.Collect(engine.Generate(t.Context(), conversation("tool"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(one.Calls()) - before; n != 2 {
		t.Errorf("one worker of two had %d of 4 calls", n)
	}
	for i := range 8 {
		req := conversation("tool")
		req.Affinity = fmt.Sprint("session-", i%4)
		reply, err := llm.Collect(engine.Generate(t.Context(), req))
		if err != nil {
			t.Fatal(err)
		}
		server := map[string]*sim.Server{oneURL: one, twoURL: two}[reply.Engine.URL]
		sameAsRecorded(t, server, reply)
	}
	if n := len(front.Calls()); n != 0 {
		t.Errorf("the router answered %d calls", n)
	}
}

func TestAWorkerThatIsGoneIsReplaced(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "engine: sglang")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	front := httptest.NewServer(&router{list: fmt.Sprintf(`{"workers":[{"url":%q,"worker_type":"regular"},{"url":%q,"is_healthy":true}]}`, gone.URL, url)})
	defer front.Close()
	engine := openSGLang(t, backend.SGLangConfig{URL: front.URL})
	for i := range 6 {
		req := conversation("text")
		req.Affinity = fmt.Sprint("session-", i)
		reply, err := llm.Collect(engine.Generate(t.Context(), req))
		if err != nil || reply.Engine.URL != url {
			t.Errorf("%s answered, %v", reply.Engine.URL, err)
		}
	}
}

func TestRoutersThatMustBeAskedThemselves(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]string{
		"prompts and answers apart": `{"workers":[{"url":"http://a:1","worker_type":"prefill"},{"url":"http://b:1","worker_type":"decode"}]}`,
		"workers over gRPC":         `{"workers":[{"url":"grpc://a:1","worker_type":"regular"}]}`,
		"none healthy":              `{"workers":[{"url":"http://a:1","is_healthy":false}]}`,
		"none":                      `{"workers":[]}`,
		"another thing":             `<html>`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &router{list: list}
			front := httptest.NewServer(r)
			defer front.Close()
			engine := openSGLang(t, backend.SGLangConfig{URL: front.URL})
			for range 3 {
				_, err := llm.Collect(engine.Generate(t.Context(), conversation("text")))
				if err == nil || err.Error() != "asked the router" {
					t.Errorf("got %v", err)
				}
			}
			if r.asked != 1 {
				t.Errorf("asked for workers %d times", r.asked)
			}
		})
	}
}

func TestTheRanksOfAWorkerAreOneServer(t *testing.T) {
	t.Parallel()
	s, url := serve(t, "engine: sglang")
	front := httptest.NewServer(&router{list: fmt.Sprintf(`{"workers":[{"url":"%s@0"},{"url":"%s@1"}]}`, url, url)})
	defer front.Close()
	engine := openSGLang(t, backend.SGLangConfig{URL: front.URL})
	reply, err := llm.Collect(engine.Generate(t.Context(), conversation("text")))
	if err != nil {
		t.Fatal(err)
	}
	sameAsRecorded(t, s, reply)
}
