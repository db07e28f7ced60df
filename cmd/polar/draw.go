package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"polar"
	"polar/llm"
)

// painter writes for a person: with colours on a terminal, without elsewhere.
type painter struct {
	w      io.Writer
	colour bool
	width  int
}

func newPainter(w io.Writer) painter {
	p := painter{w: w, width: 100}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.colour = os.Getenv("NO_COLOR") == ""
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 40 {
			p.width = width
		}
	}
	return p
}

func (p painter) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

// The colours that are used, as terminal codes.
const (
	red   = "31"
	green = "32"
	dim   = "2"
	bold  = "1"
)

func (p painter) paint(code, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// table writes rows under a head, each column as wide as its widest cell.
func (p painter) table(head []string, rows [][]string) {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string, code string) {
		var b strings.Builder
		for i, cell := range row {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
			}
		}
		p.printf("%s\n", p.paint(code, strings.TrimRight(b.String(), " ")))
	}
	line(head, bold)
	for _, row := range rows {
		line(row, "")
	}
}

// trace draws one trace: a line of facts, its mask as a bar, and what each
// part says.
func (p painter) trace(t polar.Trace) {
	facts := []string{
		string(t.SplitReason), plural(len(t.Calls), "call"),
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

// oneLine makes s fit a line of a terminal and harmless to it.
func oneLine(s string, width int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(width-1, 0)]) + "…"
}

func reward(r *float64) string {
	if r == nil {
		return "–"
	}
	return strconv.FormatFloat(*r, 'g', 4, 64)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// summaryRows are the lines of the table that submit and demo print.
func summaryRows(summaries []polar.Summary) (head []string, rows [][]string) {
	head = []string{"SESSION", "STATUS", "REWARD", "CALLS → TRACES", "TOKENS", "TRAINED", "TIME"}
	for _, s := range summaries {
		rows = append(rows, []string{
			string(s.Session), string(s.Status), reward(s.Reward),
			fmt.Sprintf("%d → %d", s.Usage.Calls, s.Traces),
			strconv.Itoa(s.Usage.PromptTokens + s.Usage.CompletionTokens),
			strconv.Itoa(s.Trainable), fmt.Sprintf("%.1fs", s.DurationMS/1000),
		})
	}
	return head, rows
}
