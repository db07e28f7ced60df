package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"polar"
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
		p.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
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
