package export

import (
	"bytes"
	"encoding/json"

	"polar"
)

// preference is a session's answer to a task and how good it was.
type preference struct {
	session *session
	trace   *polar.Trace
}

// dpoRow is a preference pair as TRL's DPO trainer reads it. What both
// conversations begin with is the prompt.
type dpoRow struct {
	Prompt          []json.RawMessage `json:"prompt" parquet:"-"`
	Chosen          []json.RawMessage `json:"chosen" parquet:"-"`
	Rejected        []json.RawMessage `json:"rejected" parquet:"-"`
	Tools           []json.RawMessage `json:"tools,omitempty" parquet:"-"`
	ScoreChosen     float64           `json:"score_chosen" parquet:"score_chosen"`
	ScoreRejected   float64           `json:"score_rejected" parquet:"score_rejected"`
	Task            polar.TaskID      `json:"task_id" parquet:"task_id"`
	ChosenSession   polar.SessionID   `json:"chosen_session_id" parquet:"chosen_session_id"`
	RejectedSession polar.SessionID   `json:"rejected_session_id" parquet:"rejected_session_id"`
}

// dpoColumns is a dpoRow in Parquet.
type dpoColumns struct {
	Prompt   string `parquet:"prompt,json"`
	Chosen   string `parquet:"chosen,json"`
	Rejected string `parquet:"rejected,json"`
	Tools    string `parquet:"tools,json,optional"`
	dpoRow
}

func (r dpoRow) columns(text *jsonText) any {
	return dpoColumns{
		dpoRow: r, Prompt: text.of(r.Prompt), Chosen: text.of(r.Chosen), Rejected: text.of(r.Rejected), Tools: text.ofList(r.Tools),
	}
}

func dpoOf(chosen, rejected preference) (any, error) {
	row := dpoRow{
		Tools: chosen.trace.Tools, ScoreChosen: *chosen.trace.Reward, ScoreRejected: *rejected.trace.Reward,
		Task: chosen.session.result.Task, ChosenSession: chosen.session.result.Session, RejectedSession: rejected.session.result.Session,
	}
	same := 0
	a, b := chosen.trace.PromptMessages, rejected.trace.PromptMessages
	for same < min(len(a), len(b)) && bytes.Equal(a[same], b[same]) {
		same++
	}
	row.Prompt = rawList(a[:same])
	row.Chosen = append(append([]json.RawMessage{}, a[same:]...), chosen.trace.ResponseMessages...)
	row.Rejected = append(append([]json.RawMessage{}, b[same:]...), rejected.trace.ResponseMessages...)
	return row, nil
}

// answerOf is the trace of a session that is compared with other sessions': the
// first of the agent at its task that has a reward and an answer.
func answerOf(s *session) *polar.Trace {
	for _, t := range s.traces {
		if isMain(t) && t.Reward != nil && len(t.ResponseMessages) > 0 {
			return t
		}
	}
	return nil
}

func isMain(t *polar.Trace) bool { return t.Role == polar.RoleMain || t.Role == "" }
