package sim

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"sync"
)

// generator answers conversations with tokens. It knows no wire format.
type generator struct {
	template        template
	policy          policy
	successRate     float64
	seed            uint64
	noncanonical    float64
	missingLogprobs float64

	mu   sync.Mutex
	seen map[uint64]uint64 // how often a prompt came, by its hash

	cache *cache // nil if what came before is not reported
}

// maxSeen bounds the memory of prompts that came before. Past it all are
// forgotten, and a prompt that comes again is answered as if for the first time.
const maxSeen = 1 << 20

// options are what a request says about sampling.
type options struct {
	maxTokens   int // 0 means no bound
	stop        []string
	includeStop bool
	seed        *int64
	greedy      bool // temperature 0: the same prompt has the same answer
}

// generation is one answer as it was sampled.
type generation struct {
	key      uint64 // all that was drawn for it
	tokens   []int32
	logprobs []float32
	finish   finish
	// stopString is the stop string that ended the answer, or "".
	stopString string
	// visible is how many bytes of text come before the stop string; -1 is all.
	visible int
	// cached is how many tokens of the prompt came before; -1 is not known.
	cached int
	// usage and fault are what the rule that answered has of them.
	usage ReportedUsage
	fault *Fault
}

type finish byte

const (
	finishEnd finish = iota
	finishLength
)

// generate samples an answer to the conversation, of which prompt is the
// rendering.
func (g *generator) generate(c conversation, prompt []int32, o options) generation {
	out := generation{key: g.draw(prompt, o), visible: -1, cached: g.cache.remember(prompt)}
	rng := rand.New(rand.NewPCG(out.key, 1))
	a := g.policy.answer(c, g.successRate, rng)
	out.usage, out.fault = a.usage, a.fault
	if !c.thinking {
		a.reasoning = ""
	}
	c.constrain(&a)
	encode := encoder(Encode)
	if g.noncanonical > 0 {
		encode = func(dst []int32, text string) []int32 {
			return EncodeNoncanonical(dst, text, g.noncanonical, rng)
		}
	}
	out.tokens = append(appendAnswer(make([]int32, 0, 64), a, encode), EndOfTurn)
	out.stopAt(o)
	if o.maxTokens > 0 && len(out.tokens) > o.maxTokens {
		out.tokens = out.tokens[:o.maxTokens]
		out.finish, out.stopString = finishLength, ""
	}
	out.logprobs = make([]float32, len(out.tokens))
	for i := range out.logprobs {
		out.logprobs[i] = logprob(mix(out.key, uint64(i)+2))
		if g.missingLogprobs > 0 && share(mix(out.key, ^uint64(i))) < g.missingLogprobs {
			out.logprobs[i] = missingLogprob
		}
	}
	return out
}

// missingLogprob is what vLLM sends for a logprob it does not have.
const missingLogprob = -9999

// draw decides everything that is random about an answer: the server's seed,
// the prompt, and the request's seed or else how often this prompt came before.
func (g *generator) draw(prompt []int32, o options) uint64 {
	h := g.seed
	for _, id := range prompt {
		h = (h ^ uint64(uint32(id))) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	switch {
	case o.seed != nil:
		return mix(mix(h, 1), uint64(*o.seed))
	case o.greedy:
		return mix(h, 2)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) >= maxSeen {
		clear(g.seen)
	}
	n := g.seen[h]
	g.seen[h] = n + 1
	return mix(mix(h, 3), n)
}

// stopAt cuts the answer after the token that completes the first stop string.
func (out *generation) stopAt(o options) {
	longest := 0
	for _, s := range o.stop {
		longest = max(longest, len(s))
	}
	if longest == 0 {
		return
	}
	var text []byte
	for i, id := range out.tokens {
		if IsSpecial(id) {
			continue
		}
		from := max(0, len(text)-longest+1)
		text = appendToken(text, id)
		at := -1
		for _, s := range o.stop {
			if j := bytes.Index(text[from:], []byte(s)); s != "" && j >= 0 && (at < 0 || from+j < at) {
				at, out.stopString = from+j, s
			}
		}
		if at >= 0 {
			out.tokens = out.tokens[:i+1]
			out.visible = at
			if o.includeStop {
				out.visible += len(out.stopString)
			}
			return
		}
	}
}

// reader gives out what the engine's parsers make of the tokens, some at a
// time.
type reader struct {
	gen    *generation
	next   int
	parser parser
	shown  int // bytes of text so far
	text   []byte
	delta  delta
}

// read takes the next n tokens. At the end of the answer it gives out all that
// was held back. The delta is good until the next read.
func (r *reader) read(n int) (ids []int32, logprobs []float32, d *delta) {
	d = &r.delta
	d.reset()
	from := r.next
	r.next = min(from+n, len(r.gen.tokens))
	for _, id := range r.gen.tokens[from:r.next] {
		r.text = r.text[:0]
		if !IsSpecial(id) {
			r.text = appendToken(r.text, id)
			if v := r.gen.visible; v >= 0 && r.shown+len(r.text) > v {
				r.text = r.text[:max(0, v-r.shown)]
			}
			r.shown += len(r.text)
		}
		r.parser.add(id, r.text, d)
	}
	if r.done() {
		r.parser.end(d)
	}
	return r.gen.tokens[from:r.next], r.gen.logprobs[from:r.next], d
}

func (r *reader) done() bool { return r.next == len(r.gen.tokens) }

// logprob turns random bits into a negative logprob that a float32 holds
// exactly, more often near 0 than far from it.
func logprob(r uint64) float32 {
	halvings := 2 * bits.TrailingZeros64(r|1<<20)
	return -float32(r>>40+1) / float32(uint64(1)<<(23+halvings))
}

// share turns random bits into a number from 0 up to 1.
func share(r uint64) float64 { return float64(r>>11) / (1 << 53) }

// mix hashes two numbers into one.
func mix(a, b uint64) uint64 {
	x := a ^ (b+0x9E3779B97F4A7C15)*0xBF58476D1CE4E5B9
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
