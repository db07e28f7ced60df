package polar

import "encoding/json"

// Status is where a session stands.
type Status string

// The states of a session; the last four are ends.
const (
	Registered   Status = "REGISTERED"
	Initializing Status = "INITIALIZING"
	Ready        Status = "READY"
	Running      Status = "RUNNING"
	PostRun      Status = "POST_RUN"
	Building     Status = "BUILDING"
	Evaluating   Status = "EVALUATING"
	Completed    Status = "COMPLETED"
	Errored      Status = "ERROR"
	TimedOut     Status = "TIMEOUT"
	Cancelled    Status = "CANCELLED"
)

// Ended reports whether the state is an end.
func (s Status) Ended() bool {
	return s == Completed || s == Errored || s == TimedOut || s == Cancelled
}

// Session is one sample of a task on its way.
type Session struct {
	ID    SessionID `json:"session_id"`
	Task  TaskID    `json:"task_id"`
	Index int       `json:"index"`
	// Attempt counts the times the session was started, from 1. It is the fence:
	// only the newest attempt may report.
	Attempt int    `json:"attempt"`
	Status  Status `json:"status"`
}

// Result is all that is known of a session that has ended.
type Result struct {
	Session    SessionID                  `json:"session_id"`
	Task       TaskID                     `json:"task_id"`
	Status     Status                     `json:"status"`
	Trajectory Trajectory                 `json:"trajectory"`
	Timing     Timing                     `json:"timing"`
	Node       string                     `json:"node_id,omitempty"`
	Error      string                     `json:"error,omitempty"`
	Metadata   map[string]json.RawMessage `json:"metadata"`
	Attempt    int                        `json:"attempt"`
	Failure    *Failure                   `json:"failure,omitempty"`
	Usage      ResultUsage                `json:"usage"`
	Artifacts  []Artifact                 `json:"artifacts"`
}

// ResultUsage sums up the model calls of a session.
type ResultUsage struct {
	Calls            int `json:"calls"`
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	CachedTokens     int `json:"cached_tokens"`
}

// Artifact is a file kept from the sandbox.
type Artifact struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Blob is the content address of the file.
	Blob string `json:"blob"`
}

// Timing says how long each part took, in milliseconds. The names are the
// Python project's, whose clients refuse others.
type Timing struct {
	RegisterToInitQueue float64 `json:"register_to_init_queue_ms"`
	Init                float64 `json:"init_ms"`
	ReadyQueue          float64 `json:"ready_queue_ms"`
	Run                 float64 `json:"run_ms"`
	PostrunQueue        float64 `json:"postrun_queue_ms"`
	Postrun             float64 `json:"postrun_ms"`
	ContainerStart      float64 `json:"container_start_ms"`
	EvalContainerStart  float64 `json:"eval_container_start_ms"`
	Prepare             float64 `json:"prepare_ms"`
	EvalPrepare         float64 `json:"eval_prepare_ms"`
	AgentSetup          float64 `json:"agent_setup_ms"`
	AgentExec           float64 `json:"agent_exec_ms"`
	Build               float64 `json:"build_ms"`
	Eval                float64 `json:"eval_ms"`
	RuntimeStop         float64 `json:"runtime_stop_ms"`
	E2E                 float64 `json:"e2e_ms"`
}

// Summary is a result without its traces: what lists and progress show.
type Summary struct {
	Session    SessionID   `json:"session_id"`
	Task       TaskID      `json:"task_id"`
	Status     Status      `json:"status"`
	Attempt    int         `json:"attempt"`
	Node       string      `json:"node_id,omitempty"`
	Error      string      `json:"error,omitempty"`
	Failure    *Failure    `json:"failure,omitempty"`
	Reward     *float64    `json:"reward,omitempty"`
	Traces     int         `json:"traces"`
	Trainable  int         `json:"trainable_tokens"`
	Usage      ResultUsage `json:"usage"`
	DurationMS float64     `json:"duration_ms"`
}

// Summary leaves out what is large.
func (r Result) Summary() Summary {
	s := Summary{
		Session: r.Session, Task: r.Task, Status: r.Status, Attempt: r.Attempt, Node: r.Node,
		Error: r.Error, Failure: r.Failure, Usage: r.Usage,
		Traces: len(r.Trajectory.Traces), Reward: r.Trajectory.Reward(), DurationMS: r.Timing.E2E,
	}
	for _, t := range r.Trajectory.Traces {
		s.Trainable += t.Trainable()
	}
	return s
}

// Usable reports whether a trainer could learn from the session.
func (r Result) Usable() bool {
	return r.Status == Completed && r.Summary().Trainable > 0
}
