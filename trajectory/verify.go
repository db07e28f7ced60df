package trajectory

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"polar"
	"polar/llm"
)

// The invariants that a Violation can break, as the project numbers them.
const (
	// InvariantForm is what every result must be besides: names that are there,
	// counts that add up, a filter that filters.
	InvariantForm = iota
	// InvariantTrained: every sampled token of a delivered call is trainable in
	// exactly one trace, as sampled, in order.
	InvariantTrained
	// InvariantContext: every other token has mask 0 and logprob 0.
	InvariantContext
	// InvariantLengths: ids, mask and logprobs are of one length; a logprob that
	// is missing is null and its call is named.
	InvariantLengths
	// InvariantFaithful: before a trained token stands what the engine had, but
	// for drift that is counted.
	InvariantFaithful
	// InvariantSame: the same calls give the same trajectory, byte for byte.
	InvariantSame
	// InvariantCounted: what was delivered and what was abandoned is what was
	// sampled.
	InvariantCounted
)

// Violation is one way in which a result breaks an invariant.
type Violation struct {
	Session polar.SessionID `json:"session_id"`
	// Trace is empty for what is wrong with the session as a whole.
	Trace polar.TraceID `json:"trace_id,omitempty"`
	// Offset is the response token at which it shows, -1 for none.
	Offset    int    `json:"offset"`
	Invariant int    `json:"invariant"`
	What      string `json:"violation"`
}

func (v *Violation) Error() string {
	where := string(v.Session)
	if v.Trace != "" {
		where += " " + string(v.Trace)
	}
	if v.Offset >= 0 {
		where += fmt.Sprintf(" response token %d", v.Offset)
	}
	if v.Invariant == InvariantForm {
		return where + ": " + v.What
	}
	return fmt.Sprintf("%s: %s (invariant %d)", where, v.What, v.Invariant)
}

// Verify proves the invariants on a result and returns the first violation, a
// *Violation, or nil. With the recorded calls of its attempt every token is
// held against what the engine was given and sampled; with nil only against the
// rest of the result.
func Verify(result polar.Result, calls []polar.Call) error {
	for v := range Violations(result, calls) {
		return &v
	}
	return nil
}

// Violations is Verify going on after the first.
func Violations(result polar.Result, calls []polar.Call) iter.Seq[Violation] {
	return func(yield func(Violation) bool) {
		c := &check{result: &result, yield: yield}
		c.session()
		for i := range result.Trajectory.Traces {
			if c.stopped {
				return
			}
			c.trace(&result.Trajectory.Traces[i])
		}
		if calls != nil && !c.stopped {
			c.against(calls)
		}
	}
}

// check reports violations until whoever listens has heard enough.
type check struct {
	result  *polar.Result
	yield   func(Violation) bool
	stopped bool
}

func (c *check) report(trace polar.TraceID, offset, invariant int, format string, args ...any) {
	if c.stopped {
		return
	}
	c.stopped = !c.yield(Violation{
		Session: c.result.Session, Trace: trace, Offset: offset, Invariant: invariant, What: fmt.Sprintf(format, args...),
	})
}

// filtered reports whether the trace says that it is kept from training, and why.
func filtered(t *polar.Trace) bool {
	f, ok := readFilter(t)
	return ok && f.Masked && f.Reason != ""
}

// session checks what the traces are to one another and to the counts.
func (c *check) session() {
	tr := &c.result.Trajectory
	var says stats
	if raw := tr.Metadata["reconstruction_stats"]; raw != nil && json.Unmarshal(raw, &says) == nil && says.ChainsTotal > len(tr.Traces) {
		c.report("", -1, InvariantTrained, "%d of its %d traces are not there (a file exported with --role is not whole)", says.ChainsTotal-len(tr.Traces), says.ChainsTotal)
	}
	seen := map[polar.TraceID]bool{}
	calls := map[polar.CallID]polar.TraceID{}
	for i := range tr.Traces {
		t := &tr.Traces[i]
		switch {
		case t.ID == "":
			c.report("", -1, InvariantForm, "trace %d has no trace_id", i)
		case seen[t.ID]:
			c.report(t.ID, -1, InvariantForm, "two traces have this name")
		case t.ParentID != "" && !seen[t.ParentID]:
			c.report(t.ID, -1, InvariantForm, "its parent %s is not before it", t.ParentID)
		}
		seen[t.ID] = true
		for _, id := range t.Calls {
			if other, twice := calls[id]; twice {
				c.report(t.ID, -1, InvariantTrained, "call %s is in %s too", id, other)
			}
			calls[id] = t.ID
		}
	}
	c.unusable()
	c.stats(len(calls))
}

// unusable checks that nothing is learnt from a session that did not end by the
// agent's doing.
func (c *check) unusable() {
	r := c.result
	var why string
	switch {
	case r.Failure != nil && r.Failure.Blame == polar.BlameService:
		why = "the service failed"
	case r.Status == polar.Cancelled:
		why = "the session was cancelled"
	default:
		return
	}
	for _, t := range r.Trajectory.Traces {
		if at := slices.Index(t.LossMask, true); at >= 0 {
			c.report(t.ID, at, InvariantForm, "is trained on, but %s", why)
		}
	}
}

// stats checks reconstruction_stats, where a builder wrote it.
func (c *check) stats(merged int) {
	raw := c.result.Trajectory.Metadata["reconstruction_stats"]
	if raw == nil {
		if len(c.result.Trajectory.Traces) > 0 {
			c.report("", -1, InvariantCounted, "there are no reconstruction_stats")
		}
		return
	}
	var s stats
	if err := json.Unmarshal(raw, &s); err != nil {
		c.report("", -1, InvariantCounted, "reconstruction_stats: %v", err)
		return
	}
	if s.DeliveredTokens+s.AbandonedTokens != s.SampledTokens {
		c.report("", -1, InvariantCounted, "%d tokens delivered and %d abandoned, of %d sampled", s.DeliveredTokens, s.AbandonedTokens, s.SampledTokens)
	}
	trained, masked, drift := 0, false, polar.Drift{}
	splits := map[polar.SplitReason]int{}
	for i := range c.result.Trajectory.Traces {
		t := &c.result.Trajectory.Traces[i]
		trained += t.Trainable()
		masked = masked || filtered(t)
		drift.Turns += t.Drift.Turns
		drift.Tokens += t.Drift.Tokens
		splits[t.SplitReason]++
	}
	if trained > s.DeliveredTokens || trained < s.DeliveredTokens && !masked {
		c.report("", -1, InvariantTrained, "%d tokens are trained on, %d were delivered", trained, s.DeliveredTokens)
	}
	for _, count := range []struct {
		what      string
		says, are int
	}{
		{"chains_total", min(s.ChainsTotal, len(c.result.Trajectory.Traces)), len(c.result.Trajectory.Traces)},
		{"completions_merged", s.CompletionsMerged, merged},
		{"drift_turns", s.DriftTurns, drift.Turns},
		{"drift_tokens", s.DriftTokens, drift.Tokens},
	} {
		if count.says != count.are {
			c.report("", -1, InvariantCounted, "%s is %d, the traces have %d", count.what, count.says, count.are)
		}
	}
	for _, reason := range slices.Sorted(keys(splits, s.Splits)) {
		if splits[reason] != s.Splits[reason] {
			c.report("", -1, InvariantCounted, "splits says %d of %s, the traces have %d", s.Splits[reason], reason, splits[reason])
		}
	}
}

// keys are the keys of both maps, each once.
func keys[K comparable, V any](a, b map[K]V) iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range a {
			if !yield(k) {
				return
			}
		}
		for k := range b {
			if _, twice := a[k]; !twice && !yield(k) {
				return
			}
		}
	}
}

// trace checks one trace by itself.
func (c *check) trace(t *polar.Trace) {
	n := len(t.ResponseIDs)
	if len(t.LossMask) != n {
		c.report(t.ID, min(n, len(t.LossMask)), InvariantLengths, "%d ids have a mask of %d", n, len(t.LossMask))
		return
	}
	if t.ResponseLogprobs != nil && len(t.ResponseLogprobs) != n {
		c.report(t.ID, min(n, len(t.ResponseLogprobs)), InvariantLengths, "%d ids have %d logprobs", n, len(t.ResponseLogprobs))
		return
	}
	if !slices.Contains(polar.Roles(), t.Role) {
		c.report(t.ID, -1, InvariantForm, "its role is %q", t.Role)
	}
	if len(t.Calls) == 0 {
		c.report(t.ID, -1, InvariantForm, "it names no calls")
	}
	for i, id := range t.PromptIDs {
		if id < 0 {
			c.report(t.ID, -1, InvariantForm, "prompt token %d is %d", i, id)
			break
		}
	}
	c.versions(t)
	c.tokens(t)
}

// tokens checks each token of the response by itself.
func (c *check) tokens(t *polar.Trace) {
	kept := filtered(t)
	var named []polar.CallID
	_ = json.Unmarshal(t.Metadata["missing_logprobs"], &named) // absent names none
	for _, id := range named {
		if !slices.Contains(t.Calls, id) {
			c.report(t.ID, -1, InvariantLengths, "missing_logprobs names call %s, which is not in it", id)
		}
	}
	for i, id := range t.ResponseIDs {
		if c.stopped {
			return
		}
		if id < 0 {
			c.report(t.ID, i, InvariantForm, "the id is %d", id)
		}
		trained, lp := t.LossMask[i], logprobAt(t, i)
		switch {
		case trained && kept:
			c.report(t.ID, i, InvariantForm, "is trained on, though training_filter says masked")
		case lp != lp && len(named) == 0 && (trained || t.ResponseLogprobs != nil):
			c.report(t.ID, i, InvariantLengths, "has no logprob, and missing_logprobs names no call")
		case !trained && !kept && t.ResponseLogprobs != nil && lp != 0:
			c.report(t.ID, i, InvariantContext, "is context and has the logprob %v", lp)
		}
	}
}

func logprobAt(t *polar.Trace, i int) float32 {
	if t.ResponseLogprobs == nil {
		return llm.NoLogprob()
	}
	return t.ResponseLogprobs[i]
}

// versions checks that the spans of policy versions rise and lie in the response.
func (c *check) versions(t *polar.Trace) {
	last := -1
	for i, v := range t.PolicyVersions {
		switch {
		case v.Offset <= last || v.Offset >= len(t.ResponseIDs):
			c.report(t.ID, -1, InvariantForm, "policy version %s starts at %d, after %d, of %d tokens", v.Version, v.Offset, last, len(t.ResponseIDs))
		case i > 0 && v.Version == t.PolicyVersions[i-1].Version:
			c.report(t.ID, v.Offset, InvariantForm, "policy version %s starts twice", v.Version)
		}
		last = v.Offset
	}
}
