package export

import (
	"bytes"
	"encoding/json"

	"polar"
)

// polarRow is a result, on one line.
type polarRow struct {
	result *polar.Result
	line   json.RawMessage
}

// MarshalJSON is the result and nothing else.
func (r polarRow) MarshalJSON() ([]byte, error) { return r.line, nil }

// polarColumns is a polarRow in Parquet.
type polarColumns struct {
	Session polar.SessionID `parquet:"session_id"`
	Task    polar.TaskID    `parquet:"task_id"`
	Status  polar.Status    `parquet:"status"`
	Result  string          `parquet:"result,json"`
}

func (r polarRow) columns(text *jsonText) any {
	return polarColumns{Session: r.result.Session, Task: r.result.Task, Status: r.result.Status, Result: text.of(r.line)}
}

// polarRows is the result as it was stored, on one line; without the traces that
// the filter took away.
func polarRows(s *session) ([]any, error) {
	if s.narrowed {
		r := *s.result
		r.Trajectory.Traces = make([]polar.Trace, 0, len(s.traces))
		for _, t := range s.traces {
			r.Trajectory.Traces = append(r.Trajectory.Traces, *t)
		}
		line, err := encode(r)
		return []any{polarRow{result: &r, line: line}}, err
	}
	var line bytes.Buffer
	err := json.Compact(&line, s.raw)
	return []any{polarRow{result: s.result, line: line.Bytes()}}, err
}
