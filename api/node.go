package api

import (
	"time"

	"polar"
)

// ClaimRequest is a node asking for work.
type ClaimRequest struct {
	Node NodeInfo `json:"node"`
	// Room is how many sessions the node can take now.
	Room int `json:"room"`
	// Wait is how long the node is ready to wait for the first.
	Wait time.Duration `json:"wait"`
}

// ClaimReply gives a node work and tells it what to stop.
type ClaimReply struct {
	Sessions []Assignment `json:"sessions,omitempty"`
	// Cancel lists sessions the node holds that must be stopped now.
	Cancel []Cancel `json:"cancel,omitempty"`
}

// Assignment is one session given to a node under a lease.
type Assignment struct {
	Session polar.Session `json:"session"`
	Task    polar.Task    `json:"task"`
	// Queued is when the session came to the server.
	Queued time.Time `json:"queued"`
	// Lease is how long the session may go without a renewal.
	Lease time.Duration `json:"lease"`
}

// Cancel tells a node to stop a session. A cancelled session is still reported.
type Cancel struct {
	Session polar.SessionID `json:"session_id"`
	Attempt int             `json:"attempt"`
	// Kind is polar.KindCancelled or polar.KindEarlyStop.
	Kind string `json:"kind"`
}

// Renewal keeps a lease and says how far the session is.
type Renewal struct {
	Session polar.SessionID `json:"session_id"`
	Attempt int             `json:"attempt"`
	Status  polar.Status    `json:"status"`
}

// RenewRequest renews every lease a node holds.
type RenewRequest struct {
	Node     NodeInfo  `json:"node"`
	Renewals []Renewal `json:"renewals"`
}

// RenewReply lists the leases that are no longer the node's. It must stop those
// sessions and not report them.
type RenewReply struct {
	Lost []polar.SessionID `json:"lost,omitempty"`
}
