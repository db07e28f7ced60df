package trajectory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"polar"
	"polar/rawjson"
)

// Rebuild builds the trajectory of a result again, from the calls in the order
// given and in reverse, and returns a *Violation unless all three are equal byte
// for byte. What came to the result after building (rewards, filters, what the
// session's metadata says) is left out.
func Rebuild(result polar.Result, build Builder, record Record) error {
	violation := func(trace polar.TraceID, format string, args ...any) error {
		return &Violation{Session: result.Session, Trace: trace, Offset: -1, Invariant: InvariantSame, What: fmt.Sprintf(format, args...)}
	}
	once, err := build(record)
	if err != nil {
		return violation("", "it cannot be built again: %v", err)
	}
	backwards := Record{Instruction: record.Instruction, Calls: slices.Clone(record.Calls)}
	slices.Reverse(backwards.Calls)
	again, err := build(backwards)
	if err != nil {
		return violation("", "it cannot be built from the calls in reverse: %v", err)
	}
	whole, err := json.Marshal(once)
	if err != nil {
		return violation("", "%v", err)
	}
	if other, err := json.Marshal(again); err != nil || !bytes.Equal(whole, other) {
		return violation("", "the same calls in reverse give another trajectory")
	}
	stored := result.Trajectory.Traces
	if len(stored) != len(once.Traces) {
		return violation("", "%d traces are stored, %d are built again", len(stored), len(once.Traces))
	}
	for i := range stored {
		field, err := differs(stored[i], once.Traces[i])
		if err != nil {
			return violation(stored[i].ID, "%v", err)
		}
		if field != "" {
			return violation(stored[i].ID, "%s is not as it is built again", field)
		}
	}
	return nil
}

// differs names the first field in which two traces differ, but for what is set
// after building.
func differs(stored, built polar.Trace) (string, error) {
	masked := filtered(&stored)
	var objects [2]rawjson.Object
	for i, t := range []polar.Trace{stored, built} {
		t.Reward, t.RewardComponents, t.Metadata = nil, nil, nil
		if masked {
			t.LossMask = nil
		}
		raw, err := json.Marshal(t)
		if err != nil {
			return "", err
		}
		if objects[i], err = rawjson.ParseObject(raw); err != nil {
			return "", err
		}
	}
	for i, member := range objects[0] {
		if i >= len(objects[1]) || objects[1][i].Key != member.Key || !bytes.Equal(objects[1][i].Value, member.Value) {
			return member.Key, nil
		}
	}
	return "", nil
}
