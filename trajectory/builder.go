// Package trajectory rebuilds what a trainer learns from out of the calls a
// session made. Builders are pure: the same calls give the same trajectory,
// byte for byte, in whatever order they arrive.
package trajectory

import "polar"

// Builder makes a trajectory of the calls of one session attempt. It changes
// none of them. The order of calls is that of their start, then of their id,
// whatever the order of the slice.
type Builder func(calls []polar.Call) (polar.Trajectory, error)
