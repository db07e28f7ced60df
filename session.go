package polar

import "polar/llm"

// Recording says what a gateway records and imposes for one attempt at a
// session. A gateway can be told to record for a harness started by hand: then
// there is no task.
type Recording struct {
	Session SessionID
	Task    TaskID
	Attempt int
	// Key is the credential the harness will use; empty asks for a new secret.
	Key string
	// Sampling and Budget are imposed on every call.
	Sampling llm.Sampling
	Budget   Budget
	// Version is the version of the weights that calls are stamped with.
	Version string
}

// Endpoint is where a harness finds the gateway, as seen from the node's host.
type Endpoint struct {
	// URL is the gateway's root, without a path.
	URL string
	Key string
	// Model is the model the gateway serves; empty leaves it to the harness.
	Model string
	// ContextWindow is how many tokens a prompt and its answer may have together;
	// 0 if that is not known.
	ContextWindow int
}
