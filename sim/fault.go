package sim

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The kinds of fault.
const (
	FaultStatus = "status" // an HTTP error
	FaultCut    = "cut"    // the connection breaks after AfterTokens tokens
	FaultSlow   = "slow"   // the answer starts Delay later
	FaultDrop   = "drop"   // the connection breaks before anything is said
	FaultStall  = "stall"  // nothing more comes after AfterTokens tokens, for Delay or until the client leaves
	// FaultContext is the refusal of a prompt that is too long, whatever its length.
	FaultContext = "context"
)

// Fault is something that goes wrong with some of the model calls. Which calls
// those are is said by one of Every, Probability and Calls; the calls of a
// server are counted from 1 as they arrive, and of several faults for one call
// the first is taken. A fault of a rule has none of the three: it happens to the
// calls that the rule answers.
type Fault struct {
	Kind string `yaml:"kind"`
	// Status is the answer of FaultStatus and RetryAfter its header.
	Status      int           `yaml:"status"`
	RetryAfter  string        `yaml:"retry_after"`
	AfterTokens int           `yaml:"after_tokens"`
	Delay       time.Duration `yaml:"delay"`

	Every       int     `yaml:"every"`
	Probability float64 `yaml:"probability"`
	Calls       []int   `yaml:"calls"`
	// Times is how often at most it happens; 0 means no bound.
	Times int `yaml:"times"`
}

// validate checks a fault of the server, or of a rule.
func (f Fault) validate(ofRule bool) error {
	switch f.Kind {
	case FaultStatus:
		if f.Status < 400 || f.Status > 599 {
			return fmt.Errorf("status: is %d, must be from 400 to 599", f.Status)
		}
	case FaultSlow:
		if f.Delay <= 0 {
			return fmt.Errorf("delay: missing for %s", f.Kind)
		}
	case FaultCut, FaultDrop, FaultStall, FaultContext:
	default:
		return fmt.Errorf("kind: %q is not known; known: context, cut, drop, slow, stall, status", f.Kind)
	}
	if f.Kind != FaultStatus && (f.Status != 0 || f.RetryAfter != "") {
		return fmt.Errorf("status: has no meaning for %s", f.Kind)
	}
	if f.AfterTokens != 0 && f.Kind != FaultCut && f.Kind != FaultStall {
		return fmt.Errorf("after_tokens: has no meaning for %s", f.Kind)
	}
	if f.Delay != 0 && f.Kind != FaultSlow && f.Kind != FaultStall {
		return fmt.Errorf("delay: has no meaning for %s", f.Kind)
	}
	if f.AfterTokens < 0 || f.Delay < 0 || f.Every < 0 || f.Times < 0 {
		return fmt.Errorf("after_tokens, delay, every, times: must not be below 0")
	}
	if f.Probability < 0 || f.Probability > 1 {
		return fmt.Errorf("probability: is %v, must be from 0 to 1", f.Probability)
	}
	ways := 0
	for _, given := range []bool{f.Every > 0, f.Probability > 0, len(f.Calls) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case ofRule && ways != 0:
		return fmt.Errorf("every, probability, calls: the rule says which calls; times says how often")
	case !ofRule && ways != 1:
		return fmt.Errorf("every: give one of every, probability and calls")
	}
	return nil
}

// faults decides which call has which fault.
type faults struct {
	seed uint64
	list []Fault

	mu    sync.Mutex
	calls int
	times []int
	// ruled counts the faults of rules.
	ruled map[*Fault]int
}

// next counts a call and returns its number and its fault, or nil.
func (f *faults) next() (n int, fault *Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	n = f.calls
	for i := range f.list {
		it := &f.list[i]
		switch {
		case it.Times > 0 && f.times[i] >= it.Times,
			it.Every > 0 && n%it.Every != 0,
			it.Probability > 0 && share(mix(mix(f.seed, uint64(i)+101), uint64(n))) >= it.Probability,
			len(it.Calls) > 0 && !slices.Contains(it.Calls, n):
			continue
		}
		f.times[i]++
		return n, it
	}
	return n, nil
}

// ofRule counts a call that a rule with a fault answers. It returns nil for a
// fault that has happened often enough.
func (f *faults) ofRule(fault *Fault) *Fault {
	if fault == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.Times > 0 && f.ruled[fault] >= fault.Times {
		return nil
	}
	f.ruled[fault]++
	return fault
}

func (f *Fault) is(kind string) bool { return f != nil && f.Kind == kind }

// breakConnection ends the handler so that the client sees the connection
// break. It does not return.
func breakConnection() { panic(http.ErrAbortHandler) }
