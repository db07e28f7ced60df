package trajectory

import "polar/llm"

// turnEnds finds where turns end.
type turnEnds struct {
	configured *int32
	turns      []*turn
	known      map[int32]struct{}
	// filter has the bit of each known token's last six bits: almost every
	// token is told apart by it alone.
	filter uint64
}

func bit(id int32) uint64 { return 1 << (uint32(id) & 63) }

// find is the place of the first end-of-turn token in ids, or -1.
func (e *turnEnds) find(ids llm.IDs) int {
	if e.known == nil {
		e.learn()
	}
	for i, id := range ids {
		if e.filter&bit(id) == 0 {
			continue
		}
		if _, ok := e.known[id]; ok {
			return i
		}
	}
	return -1
}

// learn takes the last tokens of answers that ended by themselves. One that
// also stands inside an answer did not end it: sampling would have stopped.
func (e *turnEnds) learn() {
	e.known = map[int32]struct{}{}
	if e.configured != nil {
		e.add(*e.configured)
		return
	}
	for _, t := range e.turns {
		if n := len(t.ids); n > 0 && (t.call.Finish == llm.FinishStop || t.call.Finish == llm.FinishToolCalls) {
			e.add(t.ids[n-1])
		}
	}
	for _, t := range e.turns {
		for i := range len(t.ids) - 1 {
			if id := t.ids[i]; e.filter&bit(id) != 0 {
				delete(e.known, id)
			}
		}
	}
}

func (e *turnEnds) add(id int32) {
	e.known[id] = struct{}{}
	e.filter |= bit(id)
}

// difference is how many tokens differ between two renderings of an answer:
// the longer of what is left when what they begin and end with alike is taken
// away.
func difference(a, b llm.IDs) int {
	n := commonPrefix(a, b)
	a, b = a[n:], b[n:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b))
}
