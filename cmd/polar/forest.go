package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"polar"
	"polar/llm"
)

// forest draws which trace came from which: a line for each, under its parent.
func (p painter) forest(t polar.Trajectory) {
	calls := 0
	children := map[polar.TraceID][]*polar.Trace{}
	known := map[polar.TraceID]bool{}
	for i := range t.Traces {
		trace := &t.Traces[i]
		calls += len(trace.Calls)
		parent := trace.ParentID
		if !known[parent] {
			parent = ""
		}
		known[trace.ID] = true
		children[parent] = append(children[parent], trace)
	}
	p.printf("%s → %s\n", plural(calls, "call"), plural(len(t.Traces), "trace"))
	var grow func(of polar.TraceID, indent string)
	grow = func(of polar.TraceID, indent string) {
		for i, trace := range children[of] {
			branch, below := "├─ ", "│  "
			if i == len(children[of])-1 {
				branch, below = "└─ ", "   "
			}
			if of == "" {
				branch, below = "", ""
			}
			p.printf("  %s%s  %s\n", indent+branch, p.paint(bold, string(trace.ID)), strings.Join(branchFacts(trace), ", "))
			grow(trace.ID, indent+below)
		}
	}
	grow("", "")
}

// branchFacts is a trace in a line of the forest.
func branchFacts(t *polar.Trace) []string {
	role := string(t.Role)
	if t.Segment > 0 {
		role += fmt.Sprintf(" segment %d", t.Segment)
	}
	facts := []string{role, string(t.SplitReason), plural(len(t.Calls), "call")}
	switch n := len(t.Calls); {
	case n == 1:
		facts[2] = string(t.Calls[0])
	case n > 1:
		facts[2] += fmt.Sprintf(" %s…%s", t.Calls[0], t.Calls[n-1])
	}
	return append(facts, fmt.Sprintf("%d trained", t.Trainable()), "reward "+reward(t.Reward))
}

// trace draws one trace: a line of facts, its mask as a bar, and what each
// part says.
func (p painter) trace(t polar.Trace) {
	facts := []string{
		string(t.Role), string(t.SplitReason), plural(len(t.Calls), "call"),
		fmt.Sprintf("%d prompt + %d response tokens", len(t.PromptIDs), len(t.ResponseIDs)),
		fmt.Sprintf("%d trained", t.Trainable()), "reward " + reward(t.Reward),
	}
	if t.Drift.Turns > 0 {
		facts = append(facts, fmt.Sprintf("drift %d tokens in %s", t.Drift.Tokens, plural(t.Drift.Turns, "turn")))
	}
	p.printf("%s  %s\n", p.paint(bold, string(t.ID)), strings.Join(facts, ", "))
	p.printf("  %s\n", p.maskBar(t))
	for _, raw := range t.PromptMessages {
		p.message("prompt ", raw, false)
	}
	for _, raw := range t.ResponseMessages {
		m, err := llm.ParseMessage(raw)
		p.message("", raw, err == nil && m.Role == "assistant")
	}
}

// maskBar draws the trace from its first token to its last: dots for the
// prompt, light cells for what came in between, full ones for what is trained.
func (p painter) maskBar(t polar.Trace) string {
	width := min(p.width-4, 96)
	total := len(t.PromptIDs) + len(t.ResponseIDs)
	if total == 0 {
		return "(no tokens)"
	}
	width = min(width, total)
	var b strings.Builder
	for cell := range width {
		from, to := cell*total/width, (cell+1)*total/width
		trained, response := 0, 0
		for i := from; i < to; i++ {
			if i < len(t.PromptIDs) {
				continue
			}
			response++
			if t.LossMask[i-len(t.PromptIDs)] {
				trained++
			}
		}
		switch {
		case response*2 < to-from:
			b.WriteString(p.paint(dim, "·"))
		case trained*2 >= response && trained > 0:
			b.WriteString(p.paint(green, "█"))
		default:
			b.WriteString("░")
		}
	}
	return b.String()
}

func (p painter) message(where string, raw json.RawMessage, trained bool) {
	m, err := llm.ParseMessage(raw)
	if err != nil {
		p.printf("  %s%s\n", where, oneLine(string(raw), p.width-8))
		return
	}
	text := m.Text()
	if m.Reasoning != "" {
		text = "(" + m.Reasoning + ") " + text
	}
	for _, c := range m.ToolCalls {
		text += " → " + c.Name + c.Arguments
	}
	mark, code := "░", dim
	if trained {
		mark, code = "█", green
	}
	label := fmt.Sprintf("%s%s", where, m.Role)
	p.printf("  %s %s\n", p.paint(code, mark), p.paint(code, fmt.Sprintf("%-16s %s", label, oneLine(text, p.width-24))))
}
