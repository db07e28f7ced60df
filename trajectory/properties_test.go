package trajectory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polar"
	"polar/llm"
	"polar/trajectory"
)

func builder(tb testing.TB, strategy, config string) trajectory.Builder {
	tb.Helper()
	known := polar.Registry[trajectory.Builder]{
		"per_request":    polar.Opener(trajectory.PerRequest),
		"prefix_merging": polar.Opener(trajectory.PrefixMerging),
	}
	b, err := known.Open(polar.Spec{Kind: strategy, Config: json.RawMessage(config)})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

const everyRole = `"train_roles":["main","subagent","compaction","auxiliary"]`

// strategies are all builders, each with whether its contexts are the engine's.
var strategies = []struct {
	name, config string
	faithful     bool
}{
	{"per_request", `{` + everyRole + `}`, true},
	{"prefix_merging", `{"drift":"split",` + everyRole + `}`, true},
	{"prefix_merging", `{` + everyRole + `}`, false},
	{"prefix_merging", `{"drift":"splice","end_of_turn_token_id":2,"credit":"split","mark_tool_errors":true,` + everyRole + `}`, false},
}

func TestInvariantsHoldForAnyCalls(t *testing.T) {
	t.Parallel()
	for _, s := range strategies {
		t.Run(s.name+strings.ReplaceAll(s.config, everyRole, ""), func(t *testing.T) {
			t.Parallel()
			build := builder(t, s.name, s.config)
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t)
				if err := broken(build, w, s.faithful); err != nil {
					t.Fatal(err)
				}
				shuffled := rapid.Permutation(w.calls).Draw(t, "order")
				if diff := cmp.Diff(built(build, w.record(w.calls)), built(build, w.record(shuffled))); diff != "" {
					t.Fatalf("another order of arrival gives another trajectory:\n%s", diff)
				}
				if diff := cmp.Diff(built(build, w.record(w.calls)), built(build, w.record(w.standalone()))); diff != "" {
					t.Fatalf("how prompts are kept changes the trajectory:\n%s", diff)
				}
			})
		})
	}
}

func drawWorld(t *rapid.T) *world {
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
	return newWorld(pick, rapid.IntRange(0, 12).Draw(t, "calls"), rapid.Bool().Draw(t, "messages"))
}

func built(build trajectory.Builder, r trajectory.Record) string {
	tr, err := build(r)
	if err != nil {
		return err.Error()
	}
	raw, err := json.Marshal(tr)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// broken says which invariant of the contract the trajectory of w breaks.
func broken(build trajectory.Builder, w *world, faithful bool) error {
	before := fmt.Sprint(w.calls)
	tr, err := build(w.record(w.calls))
	if err != nil {
		return err
	}
	if fmt.Sprint(w.calls) != before {
		return fmt.Errorf("the calls were changed")
	}
	byID := map[polar.CallID]polar.Call{}
	flat := map[polar.CallID]llm.IDs{}
	delivered, abandoned := 0, 0
	for i, c := range w.calls {
		byID[c.ID], flat[c.ID] = c, w.flat[i]
		switch {
		case !c.Delivered:
			abandoned += len(c.Sampled)
		case c.Untrainable == "" && c.Prompt != nil:
			delivered += len(c.Sampled)
		}
	}
	inTrace := map[polar.CallID]bool{}
	ids := map[polar.TraceID]bool{}
	trained := 0
	for i, trace := range tr.Traces {
		if want := polar.TraceID(fmt.Sprintf("trace-%03d", i)); trace.ID != want {
			return fmt.Errorf("trace %d is named %s", i, trace.ID)
		}
		if trace.ParentID != "" && !ids[trace.ParentID] {
			return fmt.Errorf("%s has the parent %s, which is not before it", trace.ID, trace.ParentID)
		}
		ids[trace.ID] = true
		if !slices.Contains(polar.Roles(), trace.Role) || len(trace.Metadata["role_evidence"]) < 3 {
			return fmt.Errorf("%s has the role %q by %s", trace.ID, trace.Role, trace.Metadata["role_evidence"])
		}
		if err := brokenTrace(trace, byID, flat, faithful); err != nil {
			return fmt.Errorf("%s: %w", trace.ID, err)
		}
		for _, id := range trace.Calls {
			if inTrace[id] {
				return fmt.Errorf("call %s is in two traces", id)
			}
			inTrace[id] = true
			trained += len(byID[id].Sampled)
		}
	}
	if trained != delivered {
		return fmt.Errorf("%d tokens are trained on, %d were delivered", trained, delivered)
	}
	return brokenStats(tr, len(inTrace), delivered, abandoned)
}

// brokenTrace walks the response: what is trained on must be the answers of the
// trace's calls, one after the other, and nothing else.
func brokenTrace(tr polar.Trace, calls map[polar.CallID]polar.Call, flat map[polar.CallID]llm.IDs, faithful bool) error {
	if len(tr.ResponseIDs) != len(tr.LossMask) || len(tr.ResponseIDs) != len(tr.ResponseLogprobs) {
		return fmt.Errorf("lengths %d, %d, %d", len(tr.ResponseIDs), len(tr.LossMask), len(tr.ResponseLogprobs))
	}
	if !slices.Equal(tr.PromptIDs, flat[tr.Calls[0]]) {
		return fmt.Errorf("the prompt is not the first call's")
	}
	at := 0
	for _, id := range tr.Calls {
		c := calls[id]
		if !c.Delivered {
			return fmt.Errorf("call %s was not delivered", id)
		}
		for len(c.Sampled) > 0 && at < len(tr.ResponseIDs) && !tr.LossMask[at] {
			if tr.ResponseLogprobs[at] != 0 {
				return fmt.Errorf("masked token %d has a logprob", at)
			}
			at++
		}
		context := slices.Concat(tr.PromptIDs, tr.ResponseIDs[:at])
		if faithful && len(c.Sampled) > 0 && !slices.Equal(context, flat[id]) {
			return fmt.Errorf("before call %s stands %v, the engine had %v", id, context, flat[id])
		}
		for _, token := range c.Sampled {
			if at == len(tr.ResponseIDs) || !tr.LossMask[at] || tr.ResponseIDs[at] != token.ID {
				return fmt.Errorf("token %d is not call %s's", at, id)
			}
			if lp := tr.ResponseLogprobs[at]; lp != token.Logprob && (lp == lp || token.HasLogprob()) {
				return fmt.Errorf("logprob %d is %v, was %v", at, lp, token.Logprob)
			}
			at++
		}
	}
	if slices.Contains(tr.LossMask[at:], true) {
		return fmt.Errorf("more is trained on than was sampled")
	}
	return nil
}

type statistics struct {
	Total, Merged, Chains         int
	Sampled, Delivered, Abandoned int
	DriftTurns                    int
	Splits                        map[polar.SplitReason]int
}

func readStats(tr polar.Trajectory) (statistics, error) {
	var s struct {
		Total      int                       `json:"completions_total"`
		Merged     int                       `json:"completions_merged"`
		Chains     int                       `json:"chains_total"`
		Sampled    int                       `json:"sampled_tokens"`
		Delivered  int                       `json:"delivered_tokens"`
		Abandoned  int                       `json:"abandoned_tokens"`
		DriftTurns int                       `json:"drift_turns"`
		Splits     map[polar.SplitReason]int `json:"splits"`
	}
	err := json.Unmarshal(tr.Metadata["reconstruction_stats"], &s)
	return statistics(s), err
}

func brokenStats(tr polar.Trajectory, merged, delivered, abandoned int) error {
	got, err := readStats(tr)
	if err != nil {
		return err
	}
	want := got
	want.Merged, want.Chains = merged, len(tr.Traces)
	want.Delivered, want.Abandoned, want.Sampled = delivered, abandoned, delivered+abandoned
	want.DriftTurns, want.Splits = 0, map[polar.SplitReason]int{}
	for _, t := range tr.Traces {
		want.DriftTurns += t.Drift.Turns
		want.Splits[t.SplitReason]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("statistics:\n%s", diff)
	}
	if empty := len(tr.Traces) == 0; empty != (tr.Status == polar.Errored) || empty != (tr.Error == "no completions") {
		return fmt.Errorf("%d traces and status %s %q", len(tr.Traces), tr.Status, tr.Error)
	}
	return nil
}

// TestMergingEqualsPerRequestWhereNothingIsShared has conversations of one call
// whose prompts begin with different tokens.
func TestMergingEqualsPerRequestWhereNothingIsShared(t *testing.T) {
	t.Parallel()
	each, merged := builder(t, "per_request", ""), builder(t, "prefix_merging", "null")
	rapid.Check(t, func(t *rapid.T) {
		w := &world{pick: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }, messages: true}
		for i := range rapid.IntRange(0, 8).Draw(t, "calls") {
			prompt := append(llm.IDs{int32(100 + i)}, w.sentence(1)...)
			w.add(prompt, []json.RawMessage{message("user", prompt)})
		}
		a, errA := each(of(w.calls))
		b, errB := merged(of(w.calls))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		delete(a.Metadata, "builder")
		delete(b.Metadata, "builder")
		if diff := cmp.Diff(marshal(t, a), marshal(t, b)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func marshal(t rapid.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestLinksAreThoseOfThePlainRule compares the forest with the rule written
// down plainly over whole prompts, for records without messages.
func TestLinksAreThoseOfThePlainRule(t *testing.T) {
	t.Parallel()
	build := builder(t, "prefix_merging", `{"end_of_turn_token_id":2}`)
	rapid.Check(t, func(t *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		w := newWorld(pick, rapid.IntRange(0, 16).Draw(t, "calls"), false)
		tr, err := build(of(w.calls))
		if err != nil {
			t.Fatal(err)
		}
		got := [][]polar.CallID{}
		for _, trace := range tr.Traces {
			got = append(got, trace.Calls)
		}
		if diff := cmp.Diff(plainChains(w), got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func plainChains(w *world) [][]polar.CallID {
	var order []int
	for i, c := range w.calls {
		if c.Delivered && c.Untrainable == "" && c.Prompt != nil && c.Error == nil {
			order = append(order, i) // ids and starts rise with i
		}
	}
	next := map[int]int{}
	continues := map[int]bool{}
	for at, i := range order {
		best, bestKey := -1, 0
		for _, j := range order[:at] {
			tail, ok := cutPrefix(w.flat[i], w.flat[j])
			if _, taken := next[j]; !ok || taken || w.calls[i].Engine != w.calls[j].Engine {
				continue
			}
			answer := sampledIDs(w.calls[j])
			key := 0
			if _, exact := cutPrefix(tail, answer); exact {
				key = 1_000_000 + len(w.flat[j]) + len(answer)
			} else if w.calls[j].Finish != llm.FinishLength && len(w.flat[j]) > 0 && len(tail) > 0 {
				key = len(w.flat[j])
			}
			if key > 0 && key >= bestKey {
				best, bestKey = j, key
			}
		}
		if best < 0 || bestKey < 1_000_000 && !slices.Contains(w.flat[i][len(w.flat[best]):], endOfTurn) {
			continue
		}
		next[best] = i
		continues[i] = true
	}
	out := [][]polar.CallID{}
	for _, i := range order {
		if continues[i] {
			continue
		}
		var chain []polar.CallID
		sampled := 0
		for ok := true; ok; i, ok = next[i] {
			chain = append(chain, w.calls[i].ID)
			sampled += len(w.calls[i].Sampled)
		}
		if sampled > 0 {
			out = append(out, chain)
		}
	}
	return out
}

func cutPrefix(ids, prefix llm.IDs) (llm.IDs, bool) {
	if len(ids) < len(prefix) || !slices.Equal(ids[:len(prefix)], prefix) {
		return nil, false
	}
	return ids[len(prefix):], true
}

// FuzzPrefixMerging makes a session of any bytes.
func FuzzPrefixMerging(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 200, 100, 50, 25, 12, 6, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		pick := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}
		w := newWorld(pick, min(len(data)/4, 200), len(data)%2 == 0)
		for _, s := range strategies {
			if err := broken(builder(t, s.name, s.config), w, s.faithful); err != nil {
				t.Fatal(s.name, s.config, err)
			}
		}
	})
}
