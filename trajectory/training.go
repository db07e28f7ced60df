package trajectory

import (
	"encoding/json"
	"slices"
	"strings"

	"polar"
	"polar/llm"
)

// Training says what of a session is trained on, and how.
type Training struct {
	// Roles are those whose traces are trained on: all but auxiliary, if none
	// are given.
	Roles []polar.Role `json:"train_roles"`
	// Credit is the rule by which traces share a session's reward.
	Credit Credit `json:"credit"`
	// MarkToolErrors gives a trace with a tool call that could not be parsed the
	// reward 0, as an example of how not to call.
	MarkToolErrors bool `json:"mark_tool_errors"`
}

// TrainingFilter is a trace's metadata.training_filter: what was decided about
// training on it, and why.
type TrainingFilter struct {
	// Masked says that no token is trained on, Trainable that the trace is of
	// use to a trainer.
	Masked    bool   `json:"masked"`
	Trainable bool   `json:"trainable"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"`
	// Calls are those that the reason is found in, where it is in some only.
	Calls []polar.CallID `json:"call_ids,omitempty"`
	// OriginalReward is what the trace would have been given.
	OriginalReward *float64 `json:"original_reward,omitempty"`
}

// The reasons that are decided here.
const (
	FilterRole            = "role"
	FilterCredit          = "credit"
	FilterInvalidToolCall = "parser_invalid_tool_call"
)

const filterKey = "training_filter"

// Exclude keeps a trace from being trained on: its tokens stay, no mask is on.
func Exclude(t *polar.Trace, reason, detail string) {
	t.LossMask = make(polar.Mask, len(t.LossMask))
	t.SetMeta(filterKey, TrainingFilter{Masked: true, Reason: reason, Detail: detail})
}

// check completes the settings.
func (c Training) check() (Training, error) {
	for _, r := range c.Roles {
		if !slices.Contains(polar.Roles(), r) {
			return c, polar.Invalid("train_roles", "has %q; roles are main, subagent, compaction and auxiliary", r)
		}
	}
	switch {
	case c.Roles == nil:
		c.Roles = []polar.Role{polar.RoleMain, polar.RoleSubagent, polar.RoleCompaction}
	case len(c.Roles) == 0:
		return c, polar.Invalid("train_roles", "names no role: nothing would be trained on")
	}
	switch c.Credit {
	case "":
		c.Credit = CreditAll
	case CreditAll, CreditMain, CreditSplit, CreditLast:
	default:
		return c, polar.Invalid("credit", "is %q, must be all, main, split or last", c.Credit)
	}
	return c, nil
}

// filter decides about the trace of a chain.
func (c Training) filter(t *polar.Trace, from *chain) {
	if !slices.Contains(c.Roles, t.Role) {
		Exclude(t, FilterRole, string(t.Role))
		return
	}
	if !c.MarkToolErrors {
		return
	}
	f := TrainingFilter{Trainable: true, Reason: FilterInvalidToolCall}
	for _, l := range from.links {
		if what := invalidToolCall(l.turn.call); what != "" {
			if f.Calls == nil {
				f.Detail = what
			}
			f.Calls = append(f.Calls, l.turn.call.ID)
		}
	}
	if f.Calls != nil {
		t.Reward = new(float64)
		t.SetMeta(filterKey, f)
	}
}

// invalidToolCall says by what it shows that the model meant to call a tool and
// the engine could not read it.
func invalidToolCall(c *polar.Call) string {
	m, err := llm.ParseMessage(c.Reply)
	if err != nil || len(m.ToolCalls) > 0 {
		return ""
	}
	if c.Finish == llm.FinishToolCalls {
		return "finish_without_call"
	}
	fenced := false
	for line := range strings.Lines(m.Text()) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced:
		case line == "<tool_call>", line == "</tool_call>", strings.HasPrefix(line, "<function=") && strings.HasSuffix(line, ">"):
			return "stray_tag"
		}
	}
	return ""
}

// readFilter is the trace's training_filter, if it has one.
func readFilter(t *polar.Trace) (TrainingFilter, bool) {
	var f TrainingFilter
	raw, ok := t.Metadata[filterKey]
	return f, ok && json.Unmarshal(raw, &f) == nil
}
