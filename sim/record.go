package sim

import (
	"net/http"
	"sync"

	"polar/llm"
)

// How a call ended, if it has.
const (
	EndNotYet   = "running"
	EndFinished = "finished"
	EndAborted  = "aborted" // the client left
	EndCut      = "cut"     // a fault broke the connection in the middle
	EndDropped  = "dropped" // a fault broke the connection at once
	EndRefused  = "refused" // answered with an error
)

// Recorded is the server's own record of a model call, for tests to compare
// with what came out at the other end.
type Recorded struct {
	// Number counts the calls of the server from 1, in order of arrival.
	Number    int          `json:"number"`
	ID        string       `json:"id"`
	Stream    bool         `json:"stream"`
	PromptIDs llm.IDs      `json:"prompt_token_ids"`
	TokenIDs  llm.IDs      `json:"token_ids"`
	Logprobs  llm.Logprobs `json:"logprobs"`
	// Text is what was sent of the answer's text, Sent how many tokens were. Both
	// are known when the call has ended.
	Text  string `json:"text"`
	Sent  int    `json:"sent_tokens"`
	Ended string `json:"ended"`
}

// calls keeps the last records in a ring, by their numbers.
type calls struct {
	engine string // whose errors are written
	mu     sync.Mutex
	ring   []Recorded
	last   int
}

func newCalls(n int, engine string) *calls { return &calls{engine: engine, ring: make([]Recorded, n)} }

// begin records that a call has come.
func (c *calls) begin(number int, id string) *recorder {
	r := &recorder{calls: c, number: number, id: id}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, number)
	if slot := r.slot(); slot != nil && slot.Number < number {
		*slot = Recorded{Number: number, ID: id, Ended: EndNotYet}
	}
	return r
}

func (c *calls) list() []Recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Recorded{}
	for n := max(1, c.last-len(c.ring)+1); n <= c.last; n++ {
		if r := c.ring[n%len(c.ring)]; r.Number == n {
			out = append(out, r)
		}
	}
	return out
}

// recorder writes to the record of one call, as long as it is kept.
type recorder struct {
	calls  *calls
	number int
	id     string
}

func (r *recorder) slot() *Recorded {
	if len(r.calls.ring) == 0 {
		return nil
	}
	return &r.calls.ring[r.number%len(r.calls.ring)]
}

func (r *recorder) update(f func(*Recorded)) {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	if slot := r.slot(); slot != nil && slot.Number == r.number {
		f(slot)
	}
}

func (r *recorder) sampled(stream bool, prompt []int32, gen *generation) {
	r.update(func(c *Recorded) {
		c.Stream, c.PromptIDs, c.TokenIDs, c.Logprobs = stream, prompt, gen.tokens, gen.logprobs
	})
}

func (r *recorder) end(how string, sent int, text []byte) {
	r.update(func(c *Recorded) { c.Ended, c.Sent, c.Text = how, sent, string(text) })
}

func (r *recorder) refuse(w http.ResponseWriter, err error) {
	r.end(EndRefused, 0, nil)
	asRefusal(err).write(w, r.calls.engine)
}
