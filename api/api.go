// Package api is the control plane on the wire: the JSON types of the rollout
// server, what a node and the server say to each other, and a client.
package api

import (
	"encoding/json"
	"time"

	"polar"
)

// SubmitReply answers a submitted task.
type SubmitReply struct {
	Task     polar.TaskID `json:"task_id"`
	Status   string       `json:"status"`
	Warnings []string     `json:"warnings,omitempty"`
}

// The states of a task.
const (
	TaskRunning    = "running"
	TaskCompleted  = "completed"
	TaskFailed     = "failed"
	TaskCancelling = "cancelling"
	TaskCancelled  = "cancelled"
)

// TaskStatus is where a task stands. Results holds whole results, summaries or
// nothing, as asked.
type TaskStatus struct {
	Task      polar.TaskID      `json:"task_id"`
	Status    string            `json:"status"`
	Total     int               `json:"total_sessions"`
	Completed int               `json:"completed_sessions"`
	Results   []json.RawMessage `json:"results"`
	Paths     []string          `json:"result_paths"`
}

// TaskResult is the body of a task's callback.
type TaskResult struct {
	Task    polar.TaskID      `json:"task_id"`
	Status  string            `json:"status"`
	Results []json.RawMessage `json:"results"`
	Paths   []string          `json:"result_paths"`
}

// TaskSummary is a task in a list.
type TaskSummary struct {
	Task      polar.TaskID      `json:"task_id"`
	Status    string            `json:"status"`
	Harness   string            `json:"harness"`
	Total     int               `json:"total_sessions"`
	Completed int               `json:"completed_sessions"`
	CreatedAt time.Time         `json:"created_at"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// SessionSummary is a session in a list: how it stands and, once it has ended,
// its outcome.
type SessionSummary struct {
	polar.Session
	Node      string         `json:"node_id,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	StartedAt time.Time      `json:"started_at,omitzero"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	Outcome   *polar.Summary `json:"outcome,omitempty"`
	// FailedAttempts are those after which the session was run again.
	FailedAttempts []FailedAttempt `json:"failed_attempts,omitempty"`
}

// Event is one change, as GET /events streams it.
type Event struct {
	ID   int64           `json:"id"`
	Type string          `json:"type"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data"`
}

// The types of Event.
const (
	EventTaskCreated    = "task.created"
	EventTaskUpdated    = "task.updated"
	EventTaskCompleted  = "task.completed"
	EventSessionChanged = "session.state_changed"
)

// Error is the body of every error of the control plane.
type Error struct {
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"`
}

// Health answers GET /health.
type Health struct {
	Status string `json:"status"`
	Nodes  int    `json:"nodes"`
	Reason string `json:"reason,omitempty"`
}

// NodeInfo is a node as others see it.
type NodeInfo struct {
	Node          string    `json:"node_id"`
	GatewayURL    string    `json:"gateway_url"`
	MaxInit       int       `json:"max_init_workers"`
	MaxRun        int       `json:"max_run_workers"`
	MaxPostrun    int       `json:"max_postrun_workers"`
	Metrics       Stages    `json:"metrics"`
	Healthy       bool      `json:"healthy"`
	Draining      bool      `json:"draining"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
}

// Stages counts the sessions of a node in each stage.
type Stages struct {
	InitQueue    int `json:"init_queue_depth"`
	Init         int `json:"init_inflight"`
	Ready        int `json:"ready_depth"`
	Run          int `json:"run_inflight"`
	PostrunQueue int `json:"postrun_queue_depth"`
	Postrun      int `json:"postrun_inflight"`
}

// ServerStatus answers GET /rollout/status.
type ServerStatus struct {
	Pipeline struct {
		Pending int `json:"pending_sessions"`
		Running int `json:"running_sessions"`
		Ended   int `json:"ended_sessions"`
	} `json:"pipeline"`
	Nodes []NodeInfo `json:"nodes"`
}
