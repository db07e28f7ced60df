package trajectory

import (
	"slices"

	"polar"
	"polar/llm"
)

// forest links turns into chains as PrefixMerging's comment says.
type forest struct {
	tree   *tree
	turns  []*turn
	chains []*chain
	splice bool
	ends   turnEnds
	past   history
}

// grow links the turns of a session and gives the chains their roles.
func grow(turns []*turn, c PrefixConfig, instruction string) []*chain {
	f := newForest(turns, c)
	for _, t := range turns {
		t.mark = mark(t.call, instruction)
		f.plant(t)
	}
	cast(f.chains, instruction)
	return f.chains
}

func newForest(turns []*turn, c PrefixConfig) *forest {
	f := &forest{tree: newTree(len(turns)), turns: turns, splice: c.Drift != driftSplit}
	f.ends = turnEnds{configured: c.EndOfTurn, turns: turns}
	f.past = history{turns: turns}
	return f
}

// plant finds the place of the next turn in canonical order.
func (f *forest) plant(t *turn) {
	t.prompt = f.tree.prompt(t.call.Prompt)
	f.link(t)
	t.prompt.prompts = append(t.prompt.prompts, t)
	f.tree.opened(t.prompt)
	t.answer = f.tree.enter(t.prompt, t.prompt.depth, t.ids)
	t.answer.answers = append(t.answer.answers, t)
	f.tree.opened(t.answer)
	f.past.seen++
}

func (f *forest) link(t *turn) {
	if j := f.exactlyBefore(t); j != nil {
		follow(j, link{turn: t, between: t.prompt.after(j.answer.depth)})
		return
	}
	if f.splice {
		if j := f.rerenderedBefore(t); j != nil {
			if between, drift, ok := f.spliced(j, t); ok {
				follow(j, link{turn: t, between: between, drift: drift})
				return
			}
		}
	}
	reason, from := f.whyNew(t)
	var parent *chain
	if from != nil {
		parent = from.chain
	}
	f.chains = append(f.chains, newChain(t, reason, parent))
}

// follow lets the chain that ends with j go on.
func follow(j *turn, next link) {
	j.chain.add(next)
	j.prompt.open--
	j.answer.open--
}

// exactlyBefore is the turn whose chain t continues exactly.
func (f *forest) exactlyBefore(t *turn) *turn {
	for n := t.prompt; n != nil; n = f.tree.openAbove(n) {
		for _, j := range slices.Backward(n.answers) {
			if !j.continued && sameAgent(j, t) {
				return j
			}
		}
	}
	return nil
}

// rerenderedBefore is the turn whose chain t could continue but for drift,
// given that it continues none exactly.
func (f *forest) rerenderedBefore(t *turn) *turn {
	for n := f.tree.openAbove(t.prompt); n != nil; n = f.tree.openAbove(n) {
		for _, j := range slices.Backward(n.prompts) {
			if !j.continued && sameAgent(j, t) && j.call.Finish != llm.FinishLength && rerenders(j, t) {
				return j
			}
		}
	}
	return nil
}

// begins reports whether t's prompt begins with the prompt and answer of j.
func begins(j, t *turn) bool {
	n := t.prompt
	for n.depth > j.answer.depth {
		n = n.parent
	}
	return n == j.answer
}

// rerenders reports whether t, whose prompt begins with j's but not with its
// answer too, has that answer in other tokens. Every prompt begins with the
// empty one, which therefore says nothing.
func rerenders(j, t *turn) bool {
	return j.prompt.depth > 0 && carriesAnswer(j, t)
}

// spliced is what stands between the answers of j and t once the re-rendered
// copy of j's is taken out, and how far the two differ.
func (f *forest) spliced(j, t *turn) (between llm.IDs, drift polar.Drift, ok bool) {
	tail := t.prompt.after(j.prompt.depth)
	k := f.ends.find(tail)
	if k < 0 {
		return nil, drift, false
	}
	sampled, copied, between := j.ids, tail[:k], tail[k:]
	if n := len(sampled); n > 0 && sampled[n-1] == tail[k] {
		sampled, between = sampled[:n-1], tail[k+1:]
	}
	return between, polar.Drift{Turns: 1, Tokens: difference(sampled, copied)}, true
}

// whyNew says why t continues no chain, and from which turn it was split.
func (f *forest) whyNew(t *turn) (polar.SplitReason, *turn) {
	for n := t.prompt.parent; n != nil && n.depth > 0; n = n.parent {
		if len(n.prompts) == 0 {
			continue
		}
		j, how := closest(n.prompts, t)
		switch {
		case how == withAnotherAnswer:
			return polar.SplitRewritten, j
		case !sameEngine(j, t):
			return polar.SplitEngineChanged, j
		case j.continued || j.mark.role != t.mark.role:
			return polar.SplitFork, j
		case j.call.Finish == llm.FinishLength:
			return polar.SplitTruncated, j
		}
		return polar.SplitDrift, j
	}
	if len(t.prompt.prompts) > 0 {
		return polar.SplitFork, t.prompt.prompts[0]
	}
	if j := f.past.rewrittenInto(t); j != nil {
		return polar.SplitRewritten, j
	}
	return polar.SplitRoot, nil
}

// following is how a turn follows another, the closest first.
type following int

const (
	exactly following = iota
	rerendered
	withAnotherAnswer
)

// closest is the turn, of those with one and the same prompt, that t follows
// most closely, and how.
func closest(turns []*turn, t *turn) (*turn, following) {
	best, how := (*turn)(nil), withAnotherAnswer+1
	for _, j := range slices.Backward(turns) {
		h := withAnotherAnswer
		switch {
		case begins(j, t):
			h = exactly
		case how > rerendered && rerenders(j, t):
			h = rerendered
		}
		if h < how {
			best, how = j, h
		}
	}
	return best, how
}

// sameAgent reports whether one engine was asked in one role.
func sameAgent(a, b *turn) bool { return sameEngine(a, b) && a.mark.role == b.mark.role }

func sameEngine(a, b *turn) bool {
	return a.call.Engine.Kind == b.call.Engine.Kind && a.call.Engine.Model == b.call.Engine.Model
}
