package export

import (
	"encoding/json"

	"polar"
	"polar/llm"
)

// atifRow is a trajectory of Harbor's ATIF, version 1.7.
type atifRow struct {
	Schema    string          `json:"schema_version" parquet:"schema_version"`
	Session   polar.SessionID `json:"session_id,omitempty" parquet:"session_id"`
	ID        string          `json:"trajectory_id" parquet:"trajectory_id"`
	Agent     atifAgent       `json:"agent" parquet:"agent"`
	Steps     []atifStep      `json:"steps" parquet:"-"`
	Metrics   *atifTotals     `json:"final_metrics,omitempty" parquet:"final_metrics,optional"`
	Subagents []atifRow       `json:"subagent_trajectories,omitempty" parquet:"-"`
	Extra     *atifExtra      `json:"extra,omitempty" parquet:"extra,optional"`
}

// atifColumns is an atifRow in Parquet.
type atifColumns struct {
	atifRow
	Steps     string `parquet:"steps,json"`
	Subagents string `parquet:"subagent_trajectories,json,optional"`
}

func (a atifRow) columns(text *jsonText) any {
	row := atifColumns{atifRow: a, Steps: text.of(a.Steps)}
	if len(a.Subagents) > 0 {
		row.Subagents = text.of(a.Subagents)
	}
	return row
}

type atifAgent struct {
	Name    string `json:"name" parquet:"name"`
	Version string `json:"version" parquet:"version"`
}

type atifExtra struct {
	Task   polar.TaskID `json:"task_id,omitempty" parquet:"task_id"`
	Status polar.Status `json:"status,omitempty" parquet:"status"`
	Role   polar.Role   `json:"role,omitempty" parquet:"role"`
	Reward *float64     `json:"reward,omitempty" parquet:"reward,optional"`
}

type atifStep struct {
	ID          int              `json:"step_id"`
	Source      string           `json:"source"`
	Message     any              `json:"message"`
	Reasoning   string           `json:"reasoning_content,omitempty"`
	ToolCalls   []atifCall       `json:"tool_calls,omitempty"`
	Observation *atifObservation `json:"observation,omitempty"`
	Metrics     *atifMetrics     `json:"metrics,omitempty"`
	Copied      bool             `json:"is_copied_context,omitempty"`
}

type atifCall struct {
	ID        string          `json:"tool_call_id"`
	Name      string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"`
	Extra     *atifCallExtra  `json:"extra,omitempty"`
}

// atifCallExtra keeps arguments that are no object.
type atifCallExtra struct {
	Arguments string `json:"arguments"`
}

type atifObservation struct {
	Results []atifResult `json:"results"`
}

type atifResult struct {
	Call    string `json:"source_call_id,omitempty"`
	Content any    `json:"content"`
}

type atifMetrics struct {
	PromptTokens       int          `json:"prompt_tokens"`
	CompletionTokens   int          `json:"completion_tokens"`
	PromptTokenIDs     llm.IDs      `json:"prompt_token_ids,omitempty"`
	CompletionTokenIDs llm.IDs      `json:"completion_token_ids,omitempty"`
	Logprobs           llm.Logprobs `json:"logprobs,omitempty"`
}

type atifTotals struct {
	PromptTokens     int `json:"total_prompt_tokens" parquet:"total_prompt_tokens"`
	CompletionTokens int `json:"total_completion_tokens" parquet:"total_completion_tokens"`
	CachedTokens     int `json:"total_cached_tokens" parquet:"total_cached_tokens"`
	Steps            int `json:"total_steps" parquet:"total_steps"`
}

const atifVersion = "ATIF-v1.7"

// atifRows is one trajectory: the agent's own traces one after another, all
// others as subagent trajectories.
func atifRows(s *session) ([]any, error) {
	if len(s.traces) == 0 {
		s.leaveOut(sessionsNoTrace)
		return nil, nil
	}
	r := s.result
	agent := atifAgent{Name: s.Harness, Version: "unknown"}
	row := atifRow{
		Schema: atifVersion, Session: r.Session, ID: string(r.Session), Agent: agent, Steps: []atifStep{},
		Extra: &atifExtra{Task: r.Task, Status: r.Status, Reward: r.Trajectory.Reward()},
	}
	segments := 0
	for _, t := range s.traces {
		if !isMain(t) {
			sub := atifRow{
				Schema: atifVersion, Session: r.Session, ID: string(r.Session) + "/" + string(t.ID), Agent: agent,
				Extra: &atifExtra{Role: t.Role, Reward: t.Reward},
			}
			if err := sub.add(s, t, false); err != nil {
				return nil, err
			}
			row.Subagents = append(row.Subagents, sub)
			continue
		}
		if err := row.add(s, t, segments > 0); err != nil {
			return nil, err
		}
		segments++
	}
	row.Metrics = &atifTotals{
		PromptTokens: r.Usage.PromptTokens, CompletionTokens: r.Usage.CompletionTokens, CachedTokens: r.Usage.CachedTokens, Steps: len(row.Steps),
	}
	return []any{row}, nil
}

// add appends the steps of a trace. The prompt of a later segment is context
// that was carried over.
func (a *atifRow) add(s *session, t *polar.Trace, later bool) error {
	prompt, err := parseMessages(s, t, t.PromptMessages)
	if err != nil {
		return err
	}
	response, err := parseMessages(s, t, t.ResponseMessages)
	if err != nil {
		return err
	}
	for _, m := range prompt {
		a.message(m, later || m.Role == "assistant")
	}
	answers := spans(t)
	known := len(answers) == countAnswers(response)
	first := true
	for _, m := range response {
		step := a.message(m, false)
		if m.Role != "assistant" || !known {
			continue
		}
		step.Metrics = atifMeasure(t, answers[0])
		if first {
			step.Metrics.PromptTokenIDs, first = t.PromptIDs, false
		}
		answers = answers[1:]
	}
	return nil
}

// atifMeasure is one answer in tokens.
func atifMeasure(t *polar.Trace, a span) *atifMetrics {
	m := &atifMetrics{
		PromptTokens: len(t.PromptIDs) + a.from, CompletionTokens: a.to - a.from, CompletionTokenIDs: t.ResponseIDs[a.from:a.to],
	}
	if values := logprobs(t); values != nil {
		m.Logprobs = values[a.from:a.to]
	}
	return m
}

func countAnswers(list []llm.Message) (n int) {
	for _, m := range list {
		if m.Role == "assistant" {
			n++
		}
	}
	return n
}

// message appends a step, or an observation to the last one, and returns it.
func (a *atifRow) message(m llm.Message, copied bool) *atifStep {
	if m.Role == "tool" && len(a.Steps) > 0 {
		last := &a.Steps[len(a.Steps)-1]
		if last.Observation == nil {
			last.Observation = &atifObservation{}
		}
		last.Observation.Results = append(last.Observation.Results, atifResult{Call: m.ToolCallID, Content: atifContent(m)})
		return last
	}
	source := map[string]string{"assistant": "agent", "user": "user"}[m.Role]
	if source == "" {
		source = "system"
	}
	step := atifStep{ID: len(a.Steps) + 1, Source: source, Message: atifContent(m), Reasoning: m.Reasoning, Copied: copied}
	for _, c := range m.ToolCalls {
		call := atifCall{ID: c.ID, Name: c.Name, Arguments: object(c.Arguments)}
		if call.Arguments == nil {
			call.Arguments, call.Extra = json.RawMessage("{}"), &atifCallExtra{Arguments: c.Arguments}
		}
		step.ToolCalls = append(step.ToolCalls, call)
	}
	a.Steps = append(a.Steps, step)
	return &a.Steps[len(a.Steps)-1]
}

// atifContent is text, or the parts where there is more than text.
func atifContent(m llm.Message) any {
	if onlyText(m) {
		return m.Text()
	}
	return m.Content
}
