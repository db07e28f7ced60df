package gateway

import (
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// The bounds of what a session remembers for repetitions of its calls.
const (
	maxKeptAnswers     = 8
	maxKeptAnswerBytes = 4 << 20
)

// recent are the turns of a session that a call could be a repetition of:
// those under way and the last few that ended.
type recent struct {
	mu    sync.Mutex
	turns []*turn // from the oldest on
}

// begin enters a turn under a new id, or finds the one that it only repeats and
// joins that. Identical calls that are no repetitions are different samples: a
// harness may ask several times and vote.
func (r *recent) begin(t *turn, isRetry bool, newID func() polar.CallID) (*turn, *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if earlier, f := r.find(t, isRetry); f != nil {
		return earlier, f
	}
	t.id = newID()
	r.turns = append(r.turns, t)
	return t, nil
}

// find looks for the turn that a call repeats. Its caller says that it does,
// or shows it by coming again after it went away. A turn that failed has one
// repetition that asks the engine again.
func (r *recent) find(t *turn, isRetry bool) (*turn, *follower) {
	var same []*turn
	for i, earlier := range slices.Backward(r.turns) {
		switch {
		case earlier.key != t.key:
			continue
		case t.token != "" && earlier.token == t.token:
			isRetry = true
		}
		if isRetry && earlier.hasFailed() {
			r.turns = slices.Delete(r.turns, i, i+1)
			return nil, nil
		}
		same = append(same, earlier)
	}
	for _, earlier := range same {
		if earlier.isLost() {
			if f := earlier.join(); f != nil {
				return earlier, f
			}
		}
	}
	if isRetry {
		for _, earlier := range same {
			if f := earlier.join(); f != nil {
				return earlier, f
			}
		}
	}
	return nil, nil
}

// trim forgets the oldest turns that have ended.
func (r *recent) trim() {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, bytes := 0, 0
	for _, t := range slices.Backward(r.turns) {
		if t.isRunning() {
			continue
		}
		kept++
		bytes += t.size()
		t.forgotten = kept > maxKeptAnswers || bytes > maxKeptAnswerBytes
	}
	r.turns = slices.DeleteFunc(r.turns, func(t *turn) bool { return t.forgotten })
}

// isRetry reports whether a caller says that it asks again. OpenAI's and
// Anthropic's clients count in X-Stainless-Retry-Count, Amazon's in
// Amz-Sdk-Request.
func isRetry(h http.Header) bool {
	if n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count")); err == nil && n > 0 {
		return true
	}
	for part := range strings.SplitSeq(h.Get("Amz-Sdk-Request"), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if n, err := strconv.Atoi(value); err == nil && name == "attempt" && n > 1 {
			return true
		}
	}
	return false
}

// retryToken is a caller's own name for a call, which its repetitions have too.
func retryToken(h http.Header) string { return h.Get("Idempotency-Key") }

// fingerprint tells requests apart by what they ask, not by how the answer is
// to be written: some clients repeat a stream that broke as an unstreamed call.
func fingerprint(seed maphash.Seed, wire string, req *llm.Request) uint64 {
	var h hasher
	h.SetSeed(seed)
	h.text(wire)
	h.text(req.Model)
	h.text(req.Previous)
	h.number(len(req.Messages))
	for i := range req.Messages {
		h.message(&req.Messages[i])
	}
	h.number(len(req.Tools))
	for _, tool := range req.Tools {
		h.raw(tool)
	}
	h.raw(req.ToolChoice)
	h.raw(req.ParallelToolCalls)
	h.raw(req.ResponseFormat)
	h.sampling(&req.Sampling)
	optional(&h, req.TopLogprobs)
	h.members(req.Extra)
	return h.Sum64()
}

// hasher hashes values so that where one ends and the next begins counts.
type hasher struct{ maphash.Hash }

func (h *hasher) number(n int) { maphash.WriteComparable(&h.Hash, n) }

func (h *hasher) text(s string) {
	h.number(len(s))
	_, _ = h.WriteString(s)
}

func (h *hasher) raw(b []byte) {
	h.number(len(b))
	_, _ = h.Write(b)
}

func (h *hasher) members(o rawjson.Object) {
	h.number(len(o))
	for _, m := range o {
		h.text(m.Key)
		h.raw(m.Value)
	}
}

func (h *hasher) message(m *llm.Message) {
	h.text(m.Role)
	h.raw(m.Content)
	h.text(m.Reasoning)
	h.number(len(m.ToolCalls))
	for i := range m.ToolCalls {
		call := &m.ToolCalls[i]
		h.text(call.ID)
		h.text(call.Name)
		h.text(call.Arguments)
		h.members(call.Extra)
	}
	h.text(m.ToolCallID)
	h.text(m.Name)
	h.members(m.Extra)
}

func (h *hasher) sampling(s *llm.Sampling) {
	optional(h, s.Temperature)
	optional(h, s.TopP)
	optional(h, s.TopK)
	optional(h, s.MaxTokens)
	optional(h, s.Seed)
	h.number(len(s.Stop))
	for _, stop := range s.Stop {
		h.text(stop)
	}
	h.members(s.ChatTemplateKwargs)
}

func optional[T comparable](h *hasher, v *T) {
	maphash.WriteComparable(&h.Hash, v != nil)
	if v != nil {
		maphash.WriteComparable(&h.Hash, *v)
	}
}
