package sim

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"

	"polar/llm"
)

// maxMatchBytes bounds the text that patterns look at: what a rule is about
// stands at its beginning, and a pattern over a megabyte is slow.
const maxMatchBytes = 32 << 10

// situation is what rules look at in a conversation.
type situation struct {
	user, system, toolResult string
	toolResults              int
	offered                  []json.RawMessage

	// The tools are read when the first rule asks about them.
	read  bool
	named []tool
	found *shellTool
}

func situationOf(c conversation) *situation {
	s := &situation{}
	if !c.toolsOff {
		s.offered = c.tools
	}
	last := -1
	for i, m := range c.messages {
		switch {
		case m.Role == "user":
			if text := m.Text(); last < 0 || !isReminder(text) {
				last, s.user = i, text
			}
		case isSystem(m) && last < 0:
			s.system = strings.TrimPrefix(s.system+"\n"+m.Text(), "\n")
		}
	}
	var result *llm.Message
	for i := last + 1; i < len(c.messages); i++ {
		if m := &c.messages[i]; m.Role == "tool" {
			s.toolResults++
			result = m
		}
	}
	if result != nil {
		s.toolResult = bounded(result.Text())
	}
	s.user, s.system = bounded(s.user), bounded(s.system)
	return s
}

func (s *situation) tools() []tool {
	if !s.read {
		s.read = true
		s.named = toolsOf(s.offered)
		s.found = findShell(s.named)
	}
	return s.named
}

func (s *situation) shell() *shellTool {
	s.tools()
	return s.found
}

// isReminder reports text that a harness put in by itself: it comes between
// the tool results of a task and is not what the user asked.
func isReminder(text string) bool {
	t := strings.TrimSpace(text)
	return strings.HasPrefix(t, "<system-reminder>") && strings.HasSuffix(t, "</system-reminder>")
}

func bounded(text string) string {
	if len(text) > maxMatchBytes {
		return text[:maxMatchBytes]
	}
	return text
}

// answer is what the first rule that holds says. If none does, it is said so.
func (p policy) answer(c conversation, successRate float64, rng *rand.Rand) answer {
	s := situationOf(c)
	for i := range p.rules {
		r := &p.rules[i]
		data, ok := r.holds(s)
		if !ok {
			continue
		}
		if act := r.action.choose(successRate, rng); act != nil {
			return act.perform(s, data, rng)
		}
	}
	return answer{text: "No rule of this simulation covers that."}
}

// holds reports whether the rule's conditions do, with the groups of its
// patterns.
func (r *rule) holds(s *situation) (data map[string]string, ok bool) {
	switch {
	case r.toolResults != nil && *r.toolResults != s.toolResults,
		s.toolResults < r.minToolResults,
		r.toolResult != nil && s.toolResults == 0,
		r.hasShell != nil && *r.hasShell != (s.shell() != nil),
		r.hasTool != nil && !anyTool(s.tools(), r.hasTool):
		return nil, false
	}
	patterns := [...]*regexp.Regexp{r.user, r.system, r.toolResult}
	texts := [...]string{s.user, s.system, s.toolResult}
	var groups [len(patterns)][]string
	for i, re := range patterns {
		if re == nil {
			continue
		}
		if groups[i] = re.FindStringSubmatch(texts[i]); groups[i] == nil {
			return nil, false
		}
	}
	data = map[string]string{"user": s.user, "tool_result": s.toolResult}
	for i, re := range patterns {
		if re == nil {
			continue
		}
		for j, name := range re.SubexpNames() {
			if name != "" {
				data[name] = groups[i][j]
			}
		}
	}
	return data, true
}

// choose follows the chances to an action that has none; nil means to go on
// with the next rule.
func (a *action) choose(successRate float64, rng *rand.Rand) *action {
	for a != nil && a.then != nil {
		chance := a.chance
		if a.bySuccessRate {
			chance = successRate
		}
		if rng.Float64() < chance {
			a = a.then
		} else {
			a = a.otherwise
		}
	}
	return a
}

func (a *action) perform(s *situation, data map[string]string, rng *rand.Rand) answer {
	out := answer{reasoning: oneOf(a.think, data, rng), text: oneOf(a.say, data, rng), usage: a.usage, fault: a.fault}
	if a.filler > 0 {
		out.text += fillerText(a.filler, rng)
	}
	for _, command := range a.shell {
		out.calls = append(out.calls, s.shell().call(command.expand(data)))
	}
	for _, c := range a.calls {
		out.calls = append(out.calls, call{name: c.tool, arguments: c.arguments.expand(data)})
	}
	return out
}

func oneOf(texts []text, data map[string]string, rng *rand.Rand) string {
	switch len(texts) {
	case 0:
		return ""
	case 1:
		return texts[0].expand(data)
	}
	return texts[rng.IntN(len(texts))].expand(data)
}

// fillerText is n words of two letters, each of which is one token with the
// space before it.
func fillerText(n int, rng *rand.Rand) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	b := make([]byte, 0, 3*n)
	for range n {
		r := rng.Uint32()
		b = append(b, ' ', consonants[r>>16%uint32(len(consonants))], vowels[r&0xffff%uint32(len(vowels))])
	}
	return string(b)
}
