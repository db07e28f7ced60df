package sim

import (
	"sync"

	"polar/llm"
)

// How a call ended.
const (
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
	// Text is what was sent of the answer's text, Sent how many tokens were.
	Text  string `json:"text"`
	Sent  int    `json:"sent_tokens"`
	Ended string `json:"ended"`
}

// calls keeps the last records in a ring.
type calls struct {
	mu   sync.Mutex
	ring []Recorded
	next int
	full bool
}

func newCalls(n int) *calls { return &calls{ring: make([]Recorded, n)} }

func (c *calls) add(r Recorded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ring) == 0 {
		return
	}
	c.ring[c.next] = r
	c.next = (c.next + 1) % len(c.ring)
	c.full = c.full || c.next == 0
}

func (c *calls) list() []Recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.full {
		return append([]Recorded{}, c.ring[:c.next]...)
	}
	return append(append([]Recorded{}, c.ring[c.next:]...), c.ring[:c.next]...)
}
