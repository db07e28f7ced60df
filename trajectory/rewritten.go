package trajectory

import (
	"crypto/sha256"
	"slices"
	"strings"

	"polar"
	"polar/llm"
)

const (
	// quotedBytes is how long an answer must be for its text in a message to say
	// that the message was made from it.
	quotedBytes = 100
	// quotedTurns is how far back the answer that a message quotes can be: a
	// summary is put to use soon after it was written.
	quotedTurns = 16
)

// history finds the turn whose conversation a prompt was rewritten from, when
// the prompt itself does not follow it. Its indexes are made when first asked.
type history struct {
	turns []*turn
	// seen is how many of turns came before the one asked about, indexed how
	// many of these are in the maps.
	seen, indexed int
	answers       map[[sha256.Size]byte]*turn
	openings      map[[sha256.Size]byte]*turn
}

// rewrittenInto is the turn that t was rewritten from, or nil for a root.
func (h *history) rewrittenInto(t *turn) *turn {
	if h.seen == 0 {
		return nil
	}
	h.index()
	if j := h.answeredWithin(t); j != nil {
		return j
	}
	if key, ok := opening(t.call); ok {
		if j := h.openings[key]; j != nil {
			return j
		}
	}
	if j := h.quotedBy(t); j != nil {
		t.quotes = true
		return j
	}
	return h.sharesTokens(t)
}

func (h *history) index() {
	if h.answers == nil {
		h.answers, h.openings = map[[sha256.Size]byte]*turn{}, map[[sha256.Size]byte]*turn{}
	}
	for ; h.indexed < h.seen; h.indexed++ {
		t := h.turns[h.indexed]
		if a := t.answered(); a.readable && !a.empty {
			h.answers[a.key] = t
		}
		if key, ok := opening(t.call); ok {
			h.openings[key] = t
		}
	}
}

// answeredWithin is the turn whose answer is the last that t carries.
func (h *history) answeredWithin(t *turn) *turn {
	for _, m := range slices.Backward(t.call.Messages) {
		if role(m) != "assistant" {
			continue
		}
		if a := readAnswer(m); a.readable {
			if j := h.answers[a.key]; j != nil {
				return j
			}
		}
	}
	return nil
}

// opening is a key of the thread, if it has a name, and of the messages up to
// and with the first of a user.
func opening(c *polar.Call) (key [sha256.Size]byte, ok bool) {
	b := appendCounted(nil, thread(c))
	for _, m := range c.Messages {
		b = appendCounted(b, string(m))
		if role(m) == "user" {
			return sha256.Sum256(b), true
		}
	}
	return key, false
}

// quotedBy is the latest turn whose answer stands in a message of t.
func (h *history) quotedBy(t *turn) *turn {
	var texts []string
	for _, raw := range t.call.Messages {
		if m, err := llm.ParseMessage(raw); err == nil && m.Role != "assistant" {
			texts = append(texts, m.Text())
		}
	}
	for i := h.seen - 1; i >= max(0, h.seen-quotedTurns); i-- {
		answer := h.turns[i].answered().quotable()
		if len(answer) < quotedBytes || !sameThread(h.turns[i], t) {
			continue
		}
		for _, text := range texts {
			if strings.Contains(text, answer) {
				return h.turns[i]
			}
		}
	}
	return nil
}

// sharesTokens is the turn that shares most tokens with t, if that is half of
// the shorter prompt and messages cannot tell.
func (h *history) sharesTokens(t *turn) *turn {
	for n := t.prompt; n != nil; n = n.parent {
		n.sharer, n.shared = t, n.depth
	}
	var best *turn
	most := 0
	for _, j := range h.turns[:h.seen] {
		if len(t.call.Messages) > 0 && len(j.call.Messages) > 0 {
			continue
		}
		n := j.prompt
		for n.sharer != t {
			n = n.parent
		}
		shared := n.shared
		for n := j.prompt; n.sharer != t; n = n.parent {
			n.sharer, n.shared = t, shared
		}
		if shared > 0 && shared >= most && 2*shared >= min(t.prompt.depth, j.prompt.depth) {
			best, most = j, shared
		}
	}
	return best
}
