package export

import (
	"bytes"
	"encoding/json"

	"polar"
)

// polarRows is the result as it was stored, on one line; without the traces that
// the filter took away.
func polarRows(s *session) ([]any, error) {
	if s.narrowed {
		r := *s.result
		r.Trajectory.Traces = make([]polar.Trace, 0, len(s.traces))
		for _, t := range s.traces {
			r.Trajectory.Traces = append(r.Trajectory.Traces, *t)
		}
		return []any{r}, nil
	}
	var line bytes.Buffer
	err := json.Compact(&line, s.raw)
	return []any{json.RawMessage(line.Bytes())}, err
}
