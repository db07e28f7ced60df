package api

import (
	"encoding/json"
	"errors"
	"time"

	"polar"
	"polar/llm"
)

// What callers of the control plane tell apart.
var (
	// ErrNotFound is wrapped when a task, session, node or file is not known.
	ErrNotFound = errors.New("not found")
	// ErrConflict is wrapped when an id is already taken by something else.
	ErrConflict = errors.New("conflict")
	// ErrNoSpace is wrapped when the disk is full.
	ErrNoSpace = errors.New("no space left")
)

// TaskFilter chooses the tasks of a list. Zero fields choose all.
type TaskFilter struct {
	Status  string
	Harness string
	Since   time.Time
	Limit   int
}

// Outcome is how an attempt ended, without what is large.
type Outcome struct {
	Summary polar.Summary
	// Blob is the content address of the whole result; empty for a result
	// without traces, which is its summary.
	Blob string
	// Usable says that a trainer could learn from the session.
	Usable bool
	// Retry asks for another attempt, if the task allows one more.
	Retry bool
}

// Finished is what became of an Outcome.
type Finished struct {
	// Requeued says that the session will be run again.
	Requeued bool
	// Cancel, when not empty, says that nothing was stored: the session is
	// cancelled for this kind of reason and the outcome must say so.
	Cancel string
	// Flagged counts the other sessions that nodes must now stop.
	Flagged int
}

// StoredResult is the place of a result in the order of commits.
type StoredResult struct {
	Seq     int64
	Session polar.SessionID
	Task    polar.TaskID
	Blob    string
	Summary polar.Summary
}

// PlacedResult is a StoredResult with what its task says of it.
type PlacedResult struct {
	StoredResult
	ResultPlace
}

// ResultPlace says of a result which sample of which task it is.
type ResultPlace struct {
	// Index is the number of the sample in its task, TaskSeq that of the task.
	Index   int               `json:"index"`
	TaskSeq int64             `json:"task_seq"`
	Harness string            `json:"harness"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Temperature is the one that the task imposes, if it does.
	Temperature *float64 `json:"temperature,omitempty"`
}

// ListedResult is a result in the answer to GET /rollout/results?after=.
type ListedResult struct {
	Seq int64 `json:"seq"`
	ResultPlace
}

// SessionRecord is all that is stored of a session. Result is nil until it has
// ended.
type SessionRecord struct {
	SessionSummary
	Result *StoredResult
}

// Stopped is the failure of a session that was cancelled for a kind of reason:
// polar.KindCancelled or polar.KindEarlyStop.
func Stopped(kind string) polar.Failure {
	f := polar.Failure{Stage: polar.StageQueue, Blame: polar.BlameTask, Kind: kind, Message: "cancelled by the caller"}
	if kind == polar.KindEarlyStop {
		f.Message = "stopped: the group has enough usable sessions"
	}
	return f
}

// FailedAttempt is an attempt after which the session was run again.
type FailedAttempt struct {
	Attempt int           `json:"attempt"`
	Node    string        `json:"node_id,omitempty"`
	At      time.Time     `json:"at"`
	Failure polar.Failure `json:"failure"`
}

// Counts says how many sessions wait, are held by nodes and have ended.
type Counts struct {
	Pending, Running, Ended int
}

// Delivery is one callback that is owed. A Delivery without a Session is that
// of the whole task.
type Delivery struct {
	ID      int64
	Task    polar.TaskID
	Session polar.SessionID
	URL     string
	Host    string
	Headers map[string]string
	// Tries counts the tries made, FirstTry is when the first was.
	Tries    int
	FirstTry time.Time
}

// Settlement is what became of a try at a Delivery: it is done, or is given up
// with the Error, or is due again at Due.
type Settlement struct {
	Done   bool
	GiveUp bool
	Due    time.Time
	Error  string
}

// ResultsPage answers GET /rollout/results.
type ResultsPage struct {
	Results []json.RawMessage `json:"results"`
	// Cursor is the place after the last of Results; acknowledge it when they
	// are safe.
	Cursor int64 `json:"cursor"`
	// Places and Newest come with ?after=: the place of each of Results, and the
	// number of the newest result there is.
	Places []ListedResult `json:"places,omitempty"`
	Newest int64          `json:"newest,omitempty"`
}

// AckRequest is the body of POST /rollout/results/ack.
type AckRequest struct {
	Consumer string `json:"consumer"`
	Cursor   int64  `json:"cursor"`
}

// CallsReply answers GET /rollout/session/{id}/calls.
type CallsReply struct {
	Session polar.SessionID `json:"session_id"`
	Attempt int             `json:"attempt"`
	Calls   []Call          `json:"calls"`
}

// Call is a recorded call on the wire. The tokens are there when asked for.
type Call struct {
	polar.Call
	PromptIDs  llm.IDs      `json:"prompt_ids,omitempty"`
	SampledIDs llm.IDs      `json:"sampled_ids,omitempty"`
	Logprobs   llm.Logprobs `json:"logprobs,omitempty"`
}
