// Package export turns results into the files that trainers read. Each format is
// a pure function from a session to rows; a container writes rows as JSON lines,
// compressed JSON lines or Parquet. The same results give the same bytes.
package export

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"polar"
)

// Place says which sample of which task a result is.
type Place struct {
	// Seq numbers results in the order of their commits, TaskSeq numbers tasks.
	Seq     int64
	TaskSeq int64
	// Index is the number of the sample in its task.
	Index   int
	Harness string
	Labels  map[string]string
	// Temperature is the one that the task imposes, if it does.
	Temperature *float64
}

// Item is a result that a source has.
type Item struct {
	Place
	// Status is how the session ended, or empty where only the result says it.
	Status polar.Status
	// Ref finds the result again with Source.Read.
	Ref string
	// Load returns the result as it was stored. It is good until the next Item.
	Load func() (json.RawMessage, error)
}

// Source is where results come from.
type Source interface {
	// Newest is the number of the newest result.
	Newest(ctx context.Context) (int64, error)
	// Each calls f with the results after one number and up to another, in the
	// order of their commits.
	Each(ctx context.Context, after, until int64, f func(Item) error) error
	// Read reads a result again.
	Read(ctx context.Context, ref string) (json.RawMessage, error)
}

// format is one way to write results.
type format struct {
	// whole makes one row of a session, not one of each trace.
	whole bool
	// trains leaves out traces without a token to train on.
	trains bool
	// logprobs leaves out traces that lack one of a token to train on.
	logprobs bool
	// rewarded leaves out traces without a reward.
	rewarded bool
	// rows are those of one session, of the traces that were not left out.
	rows func(*session) ([]any, error)
	// pair makes a row of two sessions of a task; then there is no rows.
	pair func(chosen, rejected preference) (any, error)
	// columns is a row of the type that Parquet gets its columns from: that of
	// the rows, or what their columns method returns.
	columns any
}

// formats is all of them.
var formats = map[string]format{
	"polar":    {rows: polarRows, whole: true, columns: polarColumns{}},
	"slime":    {rows: slimeRows, trains: true, columns: slimeColumns{}},
	"verl":     {rows: perTrace(verlOf), trains: true, columns: verlRow{}},
	"trl":      {rows: perTrace(trlOf), trains: true, logprobs: true, columns: trlRow{}},
	"nemo_gym": {rows: nemoGymRows, trains: true, logprobs: true, columns: nemoGymColumns{}},
	"prime_rl": {rows: perTrace(primeRLOf), trains: true, logprobs: true, columns: primeRLRow{}},
	"areal":    {rows: perTrace(arealOf), trains: true, logprobs: true, rewarded: true, columns: arealRow{}},
	"tinker":   {rows: perTrace(tinkerOf), trains: true, logprobs: true, rewarded: true, columns: tinkerRow{}},
	"skyrl":    {rows: skyrlRows, trains: true, columns: skyrlRow{}},
	"atif":     {rows: atifRows, whole: true, columns: atifColumns{}},
	"sft":      {rows: sftRows, columns: sftColumns{}},
	"sharegpt": {rows: shareGPTRows, columns: shareGPTRow{}},
	"dpo":      {pair: dpoOf, columns: dpoColumns{}},
}

// Formats lists the names of the formats.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// The containers.
const (
	JSONL     = "jsonl"
	JSONLZstd = "jsonl.zst"
	Parquet   = "parquet"
)

// Check says what is wrong with a format and a container.
func Check(name, container string) error {
	_, ok := formats[name]
	switch {
	case name == "":
		return polar.Invalid("format", "missing; known: %s", strings.Join(Formats(), ", "))
	case !ok:
		return polar.Invalid("format", "%q is not known; known: %s", name, strings.Join(Formats(), ", "))
	case container != JSONL && container != JSONLZstd && container != Parquet:
		return polar.Invalid("container", "%q is not known; known: jsonl, jsonl.zst, parquet", container)
	}
	return nil
}

// perTrace makes the rows of a format that has one for each trace.
func perTrace[R any](of func(*session, *polar.Trace) R) func(*session) ([]any, error) {
	return func(s *session) ([]any, error) {
		rows := make([]any, 0, len(s.traces))
		for _, t := range s.traces {
			rows = append(rows, of(s, t))
		}
		return rows, nil
	}
}

// identity says in a row what it was made of.
type identity struct {
	Task    polar.TaskID    `json:"task_id" parquet:"task_id"`
	Session polar.SessionID `json:"session_id" parquet:"session_id"`
	Trace   polar.TraceID   `json:"trace_id" parquet:"trace_id"`
	Role    polar.Role      `json:"role" parquet:"role"`
}

func identityOf(s *session, t *polar.Trace) identity {
	return identity{Task: s.result.Task, Session: s.result.Session, Trace: t.ID, Role: t.Role}
}

// decodeResult reads a stored result.
func decodeResult(seq int64, raw json.RawMessage) (*polar.Result, error) {
	var r polar.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read result %d: %w", seq, err)
	}
	for i, t := range r.Trajectory.Traces {
		if len(t.LossMask) != len(t.ResponseIDs) || t.ResponseLogprobs != nil && len(t.ResponseLogprobs) != len(t.ResponseIDs) {
			return nil, fmt.Errorf("result %d, session %s, trace %d: %d response ids, %d in the mask, %d logprobs: see polar verify",
				seq, r.Session, i, len(t.ResponseIDs), len(t.LossMask), len(t.ResponseLogprobs))
		}
	}
	return &r, nil
}
