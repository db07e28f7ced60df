package main

import (
	"fmt"
	"strconv"
	"strings"

	"polar"
)

// span is tokens of a response that stand together: an answer, or what came
// between two.
type span struct {
	from, to int
	trained  bool
}

func spans(mask polar.Mask) []span {
	var out []span
	for i, on := range mask {
		if n := len(out); n == 0 || out[n-1].trained != on {
			out = append(out, span{from: i, trained: on})
		}
		out[len(out)-1].to = i + 1
	}
	return out
}

// tokens writes the response of a trace token by token: ids coloured by mask
// and logprob on a terminal, columns elsewhere.
func (p painter) tokens(t polar.Trace) {
	if !p.colour {
		p.columns(t)
		return
	}
	p.printf("%s  %d prompt tokens, then %d: %s, %s\n", p.paint(bold, string(t.ID)), len(t.PromptIDs), len(t.ResponseIDs),
		p.paint(dim, "context"), p.scale())
	for _, s := range spans(t.LossMask) {
		label := fmt.Sprintf("%d context", s.from)
		if s.trained {
			label = fmt.Sprintf("%d trained, mean logprob %s", s.from, meanLogprob(t, s))
		}
		p.printf("%s\n", p.paint(bold, label))
		width := 0
		var line strings.Builder
		for i := s.from; i < s.to; i++ {
			id := strconv.Itoa(int(t.ResponseIDs[i]))
			if width += len(id) + 1; width > p.width-2 {
				p.printf("  %s\n", line.String())
				line.Reset()
				width = len(id) + 1
			}
			line.WriteString(p.paint(tokenColour(t, i), id) + " ")
		}
		p.printf("  %s\n", line.String())
	}
}

// columns writes one line for each token of the response.
func (p painter) columns(t polar.Trace) {
	p.printf("OFFSET\tID\tMASK\tLOGPROB\n")
	for i, id := range t.ResponseIDs {
		mask := "0"
		if t.LossMask[i] {
			mask = "1"
		}
		p.printf("%d\t%d\t%s\t%s\n", i, id, mask, logprobText(t, i))
	}
}

func logprobText(t polar.Trace, i int) string {
	if t.ResponseLogprobs == nil || t.ResponseLogprobs[i] != t.ResponseLogprobs[i] {
		return "–"
	}
	return strconv.FormatFloat(float64(t.ResponseLogprobs[i]), 'g', -1, 32)
}

func meanLogprob(t polar.Trace, s span) string {
	sum, n := 0.0, 0
	for i := s.from; i < s.to && t.ResponseLogprobs != nil; i++ {
		if lp := t.ResponseLogprobs[i]; lp == lp {
			sum += float64(lp)
			n++
		}
	}
	if n == 0 {
		return "–"
	}
	return strconv.FormatFloat(sum/float64(n), 'f', 3, 64)
}

// shades are greens from sure to unsure, each for logprobs down to a bound.
var shades = []struct {
	least float32
	code  string
}{
	{-0.1, "38;5;46"},
	{-0.5, "38;5;40"},
	{-1, "38;5;34"},
	{-2, "38;5;28"},
	{-4, "38;5;22"},
}

// unlikely is for logprobs below all shades.
const unlikely = "38;5;130"

// tokenColour is dim for context, red for a trained token without a logprob.
func tokenColour(t polar.Trace, i int) string {
	switch {
	case !t.LossMask[i]:
		return dim
	case t.ResponseLogprobs == nil || t.ResponseLogprobs[i] != t.ResponseLogprobs[i]:
		return red
	}
	for _, shade := range shades {
		if t.ResponseLogprobs[i] >= shade.least {
			return shade.code
		}
	}
	return unlikely
}

// scale explains the colours.
func (p painter) scale() string {
	parts := []string{"trained with logprob"}
	for _, shade := range shades {
		parts = append(parts, p.paint(shade.code, fmt.Sprintf("≥%g", shade.least)))
	}
	return strings.Join(append(parts, p.paint(unlikely, "less"), p.paint(red, "none")), " ")
}
