package trajectory

import "polar"

// PrefixConfig is the settings of PrefixMerging.
type PrefixConfig struct {
	// EndOfTurn is the token that ends a turn. Without it the tokens are used
	// that ended the session's own answers.
	EndOfTurn *int32 `json:"end_of_turn_token_id"`
	// Drift is splice, the default, or split.
	Drift string `json:"drift"`
	Training
}

// PrefixMerging makes one trace of every conversation that only grows.
//
// The calls are taken in order of their start, then of their id. P is the
// prompt of a call, R what was sampled for it. A call i may follow an earlier
// call j if all of P_j begins P_i; the tail is what P_i has after P_j. How i
// follows j is one of:
//
//   - exactly: the tail begins with R_j.
//   - re-rendered: it does not, but the message of i in the place after j's
//     messages is j's answer: the assistant's, with the same text but for space
//     around it and thinking, and the same tool calls with arguments equal as
//     JSON or as text. Records without messages or reply are given the benefit
//     of the doubt.
//   - with another answer: anything else, if the tail is not empty.
//
// A call continues a trace if it follows the trace's last call, and the engine
// and its model are the same,
//
//   - exactly; of several, that with the longest P_j+R_j, then the latest; else
//   - re-rendered, if drift is splice, j was not cut off at its length, and the
//     tail has an end-of-turn token; of several, that with the longest P_j, then
//     the latest. R_j stays, the tail up to the first end-of-turn token goes,
//     and the longer of what differs between the two is counted as drift.
//
// The end-of-turn token is the one configured; else any that ended an answer of
// this session (finished stop or tool_calls) and stands nowhere inside one, so
// that the last word of an engine that trims its stop token is not taken for it.
//
// Otherwise i begins a new trace, with exactly its own prompt. The call with
// the longest P_j that i follows says why, exact before re-rendered before
// another answer, then the latest; its trace is the parent:
//
//   - history_rewritten: with another answer.
//   - engine_changed: the engine or its model is another.
//   - fork: another call already continued j.
//   - truncated: j was cut off at its length, and its answer came back
//     re-rendered.
//   - drift: it came back re-rendered, and drift is split or the tail has no
//     end-of-turn token.
//
// A call that follows none but has the prompt of an earlier one (a retry, a
// vote) is a fork of the first such. A call that follows none at all is
// history_rewritten if one of these finds an earlier call, in this order: the
// one whose answer is the last earlier answer among its assistant messages; the
// latest that opens alike, up to and with the first user message, in the same
// thread where the harness names threads; the latest of the 16 before it, in the
// same thread, whose whole answer, of 100 bytes or more, stands in one of
// its other messages (a summary); where messages were not recorded, the one
// that shares most tokens, if that is half of the shorter prompt. Else it is a
// root.
//
// A call that asks for a compaction, a title or the like, as its marker tells
// (see Role in the documentation), is never in one trace with calls of another
// role: it is a fork of the conversation it extends, and stays a part of it.
//
// A conversation is a root or a fork and what was split from it for the other
// reasons; segment counts its traces from 0.
func PrefixMerging(c PrefixConfig) (Builder, error) {
	if c.EndOfTurn != nil && *c.EndOfTurn < 0 {
		return nil, polar.Invalid("end_of_turn_token_id", "must not be negative")
	}
	switch c.Drift {
	case "", driftSplice, driftSplit:
	default:
		return nil, polar.Invalid("drift", "is %q, must be %s or %s", c.Drift, driftSplice, driftSplit)
	}
	training, err := c.check()
	if err != nil {
		return nil, err
	}
	return func(r Record) (polar.Trajectory, error) {
		s, err := sift(r.Calls)
		if err != nil {
			return polar.Trajectory{}, err
		}
		return s.trajectory("prefix_merging", grow(s.turns, c, r.Instruction), training), nil
	}, nil
}

const (
	driftSplice = "splice"
	driftSplit  = "split"
)
