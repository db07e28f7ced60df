package trajectory

import (
	"cmp"
	"fmt"
	"slices"

	"polar"
	"polar/llm"
)

// session is the calls of a session attempt, sorted out.
type session struct {
	// turns are the calls that can be trained on, in canonical order.
	turns       []*turn
	untrainable []untrainable
	stats       stats
}

// turn is a delivered call with its ids, and its place in the forest.
type turn struct {
	call *polar.Call
	ids  llm.IDs
	// prompt and answer are where the prompt, and the prompt with the sampled
	// tokens, end in the tree.
	prompt, answer *node
	chain          *chain
	// continued says that another turn follows in the same chain.
	continued bool
	// reply is the call's reply for comparison, once it is needed.
	reply *answer
	// mark is the role that the call gives away itself.
	mark marker
	// quotes says that only an answer quoted in another message tells which
	// conversation the call goes on from.
	quotes bool
}

// untrainable names a delivered call that is in no trace.
type untrainable struct {
	Call   polar.CallID `json:"call_id"`
	Reason string       `json:"reason"`
}

// stats is reconstruction_stats. Of the calls, completions_total leaves out
// those that failed without a token; completions_merged are in a trace. Of the
// tokens delivered, trained_tokens are of a role that is trained on.
type stats struct {
	CompletionsTotal  int                       `json:"completions_total"`
	CompletionsMerged int                       `json:"completions_merged"`
	ChainsTotal       int                       `json:"chains_total"`
	SampledTokens     int                       `json:"sampled_tokens"`
	DeliveredTokens   int                       `json:"delivered_tokens"`
	AbandonedTokens   int                       `json:"abandoned_tokens"`
	TrainedTokens     int                       `json:"trained_tokens"`
	UntrainableTokens int                       `json:"untrainable_tokens"`
	DriftTurns        int                       `json:"drift_turns"`
	DriftTokens       int                       `json:"drift_tokens"`
	CallsFailed       int                       `json:"calls_failed"`
	CallsAbandoned    int                       `json:"calls_abandoned"`
	CallsUntrainable  int                       `json:"calls_untrainable"`
	CallsEmpty        int                       `json:"calls_empty"`
	Splits            map[polar.SplitReason]int `json:"splits"`
}

// sift puts the calls in order and sorts out which can be trained on.
func sift(calls []polar.Call) (*session, error) {
	order := make([]*polar.Call, len(calls))
	tokens := 0
	for i := range calls {
		order[i] = &calls[i]
		tokens += len(calls[i].Sampled)
	}
	slices.SortFunc(order, func(a, b *polar.Call) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
	})
	s := &session{stats: stats{Splits: map[polar.SplitReason]int{}}}
	named := make(map[polar.CallID]struct{}, len(order))
	arena := make(llm.IDs, 0, tokens)
	for _, c := range order {
		if _, twice := named[c.ID]; twice {
			return nil, fmt.Errorf("build trajectory: call %s is given twice", c.ID)
		}
		named[c.ID] = struct{}{}
		if s.tally(c) {
			from := len(arena)
			for _, t := range c.Sampled {
				arena = append(arena, t.ID)
			}
			s.turns = append(s.turns, &turn{call: c, ids: arena[from:len(arena):len(arena)]})
		}
	}
	return s, nil
}

// tally counts a call and reports whether it can be trained on.
func (s *session) tally(c *polar.Call) bool {
	n := len(c.Sampled)
	if c.Error != nil && n == 0 {
		s.stats.CallsFailed++
		return false
	}
	s.stats.CompletionsTotal++
	if !c.Delivered {
		s.stats.CallsAbandoned++
		s.stats.AbandonedTokens += n
		s.stats.SampledTokens += n
		return false
	}
	if reason := whyUntrainable(c); reason != "" {
		s.untrainable = append(s.untrainable, untrainable{Call: c.ID, Reason: reason})
		s.stats.CallsUntrainable++
		s.stats.UntrainableTokens += n
		return false
	}
	if n == 0 {
		s.stats.CallsEmpty++
	}
	s.stats.SampledTokens += n
	return true
}

func whyUntrainable(c *polar.Call) string {
	switch {
	case c.Untrainable != "":
		return c.Untrainable
	case c.Prompt == nil:
		return "no prompt ids"
	case len(c.Sampled) == 0 && c.Usage.CompletionTokens > 0:
		return "no sampled ids"
	}
	return ""
}

// trajectory writes the chains out as traces. A chain in which nothing was
// sampled is left out; what was split from it gets its parent.
func (s *session) trajectory(builder string, chains []*chain, training Training) polar.Trajectory {
	out := polar.Trajectory{Status: polar.Completed, Traces: make([]polar.Trace, 0, len(chains))}
	for _, c := range chains {
		if c.sampled() == 0 {
			continue
		}
		c.id = polar.TraceID(fmt.Sprintf("trace-%03d", len(out.Traces)))
		t := c.trace()
		s.stats.CompletionsMerged += len(t.Calls)
		s.stats.DeliveredTokens += t.Trainable()
		training.filter(&t, c)
		s.stats.TrainedTokens += t.Trainable()
		s.stats.DriftTurns += t.Drift.Turns
		s.stats.DriftTokens += t.Drift.Tokens
		s.stats.Splits[t.SplitReason]++
		out.Traces = append(out.Traces, t)
	}
	s.stats.ChainsTotal = len(out.Traces)
	out.SetMeta("builder", builder)
	out.SetMeta(creditKey, training.Credit)
	out.SetMeta("reconstruction_stats", s.stats)
	if len(s.untrainable) > 0 {
		out.SetMeta("untrainable_calls", s.untrainable)
	}
	if len(out.Traces) == 0 {
		out.Status, out.Error = polar.Errored, "no completions"
	}
	return out
}
