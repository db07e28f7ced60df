package trajectory

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"polar"
)

// The evidence by which the place of a conversation among the others tells its
// role.
const (
	hasInstruction   = "instruction"
	firstWithTools   = "first_with_tools"
	mostTokens       = "most_tokens"
	sameSetup        = "same_setup"
	continuesParent  = "continues_parent"
	otherSystem      = "other_system_prompt"
	otherTools       = "other_tools"
	quotedSummary    = "quoted_summary"
	withoutTools     = "no_tools"
	longWithoutTools = "long_answer"
)

// shortTokens is how much a model at most says to a question beside the task.
const shortTokens = 1024

// setup is what an agent is made of: its system prompt and its tools.
type setup struct {
	system, tools [sha256.Size]byte
	hasTools      bool
}

func setupOf(c *polar.Call) setup {
	s := setup{system: sha256.Sum256([]byte(systemText(c.Messages))), hasTools: len(c.Tools) > 0}
	var b []byte
	for _, t := range c.Tools {
		b = appendCounted(b, string(t))
	}
	s.tools = sha256.Sum256(b)
	return s
}

// cast gives the chains, which are in canonical order, their roles: the role a
// call gives away itself, else by which conversation is the main one and what
// the others are to it. What the links said of a compaction, or of an agent that
// was only told what another answered, is put right.
func cast(chains []*chain, instruction string) {
	unmarked := make([]*chain, 0, len(chains))
	for _, c := range chains {
		c.setup = setupOf(c.first())
		if c.marker = c.links[0].turn.mark; c.role == "" {
			unmarked = append(unmarked, c)
		}
	}
	main := principal(unmarked, instruction)
	known := map[setup]polar.Role{}
	for i, c := range chains {
		if c.role == "" {
			c.marker = place(c, main, known, chains[i+1:])
		}
		if _, ok := known[c.setup]; !ok && (c.role == polar.RoleMain || c.role == polar.RoleSubagent && c.hasTools) {
			known[c.setup] = c.role
		}
	}
	for i, c := range chains {
		switch {
		case c.role == polar.RoleCompaction && c.parent == nil:
			adopt(chains, i)
		case c.links[0].turn.quotes && c.role != polar.RoleCompaction && c.parent.role != polar.RoleCompaction && c.role != c.parent.role:
			c.parent, c.reason = nil, polar.SplitRoot // it was told an answer of another's
		}
		c.join()
	}
}

// principal marks the chain that the main conversation begins with, and
// returns it: of those with the instruction, where any has it, of those with
// tools, where any has them, the first; without tools the one with most tokens.
func principal(chains []*chain, instruction string) *chain {
	if len(chains) == 0 {
		return nil
	}
	evidence := ""
	if instruction = strings.TrimSpace(instruction); instruction != "" {
		if told := filterChains(chains, func(c *chain) bool { return isTold(c.first(), instruction) }); len(told) > 0 {
			chains, evidence = told, hasInstruction
		}
	}
	main := chains[0]
	if equipped := filterChains(chains, func(c *chain) bool { return c.hasTools }); len(equipped) > 0 {
		main = equipped[0]
		if evidence == "" {
			evidence = firstWithTools
		}
	} else {
		tokens := map[*chain]int{}
		for _, c := range chains {
			tokens[c.conversation] += c.sampled()
		}
		for _, c := range chains {
			if tokens[c.conversation] > tokens[main.conversation] {
				main = c
			}
		}
		if evidence == "" {
			evidence = mostTokens
		}
	}
	main.marker = marker{polar.RoleMain, evidence}
	return main
}

func filterChains(chains []*chain, keep func(*chain) bool) []*chain {
	var out []*chain
	for _, c := range chains {
		if keep(c) {
			out = append(out, c)
		}
	}
	return out
}

// isTold reports whether a user tells the instruction.
func isTold(c *polar.Call, instruction string) bool {
	return slices.ContainsFunc(c.Messages, func(m json.RawMessage) bool {
		return role(m) == "user" && strings.Contains(text(m), instruction)
	})
}

// place finds the role of a chain whose calls do not tell.
func place(c, main *chain, known map[setup]polar.Role, later []*chain) marker {
	if !c.hasTools && len(c.links) == 1 && asksSummary(c.first()) && isQuoted(c.links[0].turn, later) {
		return marker{polar.RoleCompaction, quotedSummary}
	}
	if c.setup == main.setup {
		return marker{polar.RoleMain, sameSetup}
	}
	if r, ok := known[c.setup]; ok {
		return marker{r, sameSetup}
	}
	if p := c.agent(); p != nil && (c.system == p.system || !c.links[0].turn.quotes) {
		return marker{p.role, continuesParent}
	}
	other := otherSystem
	if c.system == main.system {
		other = otherTools
	}
	switch {
	case c.hasTools || len(c.links) > 1 || !main.hasTools:
		return marker{polar.RoleSubagent, other}
	case c.sampled() > shortTokens:
		return marker{polar.RoleSubagent, longWithoutTools}
	}
	return marker{polar.RoleAuxiliary, withoutTools}
}

// agent is the nearest chain above that is an agent's own conversation.
func (c *chain) agent() *chain {
	p := c.parent
	for p != nil && p.role != polar.RoleMain && p.role != polar.RoleSubagent {
		p = p.parent
	}
	return p
}

// asksSummary reports whether the call asks to make something shorter.
func asksSummary(c *polar.Call) bool {
	asked := strings.ToLower(systemText(c.Messages) + lastUserText(c.Messages))
	for _, word := range []string{"summar", "compact", "condens"} {
		if strings.Contains(asked, word) {
			return true
		}
	}
	return false
}

// isQuoted reports whether a later conversation opens with the answer.
func isQuoted(t *turn, later []*chain) bool {
	answer := t.answered().quotable()
	if len(answer) < quotedBytes {
		return false
	}
	for _, c := range later {
		for _, m := range c.first().Messages {
			if strings.Contains(text(m), answer) {
				return true
			}
		}
	}
	return false
}

// adopt gives the compaction at i, which links to nothing before it, to the
// conversation it made shorter: the latest with the setup of the one that goes
// on from it, else the latest main one.
func adopt(chains []*chain, i int) {
	c := chains[i]
	var heir *chain
	for _, later := range chains[i+1:] {
		if later.parent == c {
			heir = later
			break
		}
	}
	for _, before := range slices.Backward(chains[:i]) {
		if heir != nil && before.setup != heir.setup || heir == nil && before.role != polar.RoleMain {
			continue
		}
		c.parent, c.reason = before, polar.SplitRewritten
		return
	}
}
