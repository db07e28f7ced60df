// Package trajectory rebuilds what a trainer learns from out of the calls a
// session made. Builders are pure: the same calls give the same trajectory,
// byte for byte, in whatever order they arrive.
package trajectory

import "polar"

// Builder makes a trajectory of one session attempt. It changes nothing of it.
// The order of calls is that of their start, then of their id, whatever the
// order of the slice.
type Builder func(Record) (polar.Trajectory, error)

// Record is what is known of a session attempt.
type Record struct {
	// Instruction is what the agent was told to do; empty where nobody knows.
	Instruction string
	Calls       []polar.Call
}
