package trajectory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// marker is the role that a call itself gives away, and by what. The zero
// marker is that of a call which says nothing.
type marker struct {
	role     polar.Role
	evidence string
}

// The evidence by which a call itself tells its role. Headers are named as
// they are sent.
const (
	codexSubagent     = "x-openai-subagent"
	codexParent       = "x-codex-parent-thread-id"
	codexTurn         = "x-codex-turn-metadata"
	claudeAgent       = "x-claude-code-agent-id"
	parentSession     = "x-parent-session-id"
	summaryPrompt     = "summary_prompt"
	titlePrompt       = "title_prompt"
	routerPrompt      = "router_prompt"
	quotaProbe        = "quota_probe"
	completeTaskTool  = "complete_task_tool"
	completeTaskNamed = `"complete_task"`
)

// mark reads the role that a call gives away. Compaction comes before the
// others, since a sub-agent compacts too.
func mark(c *polar.Call, instruction string) marker {
	codex := codexRole(c.Headers)
	if codex.role == polar.RoleCompaction || codex.role == polar.RoleAuxiliary {
		return codex
	}
	if m := askedFor(c, instruction); m.role != "" {
		return m
	}
	switch {
	case codex.role != "":
		return codex
	case c.Headers[claudeAgent] != "":
		return marker{polar.RoleSubagent, claudeAgent}
	case c.Headers[parentSession] != "":
		return marker{polar.RoleSubagent, parentSession}
	case hasCompleteTask(c.Tools):
		return marker{polar.RoleSubagent, completeTaskTool}
	}
	return marker{}
}

// thread is what a harness calls the conversation of a call, where it says so:
// agents that open alike are told apart by it.
func thread(c *polar.Call) string {
	return cmp.Or(c.Headers[claudeAgent], c.Headers["thread-id"], c.Headers["x-session-id"])
}

func sameThread(a, b *turn) bool { return thread(a.call) == thread(b.call) }

// codexRole reads what Codex sends with its calls.
func codexRole(headers map[string]string) marker {
	var kind, source string
	// The header may be cut off at the end; what stands before counts.
	_ = rawjson.EachMember([]byte(headers[codexTurn]), func(key string, value []byte) error {
		switch key {
		case "request_kind":
			kind, _ = rawjson.String(value)
		case "thread_source":
			source, _ = rawjson.String(value)
		}
		return nil
	})
	subagent := headers[codexSubagent]
	switch {
	case kind == "compaction":
		return marker{polar.RoleCompaction, codexTurn}
	case subagent == "compact":
		return marker{polar.RoleCompaction, codexSubagent}
	case kind == "prewarm":
		return marker{polar.RoleAuxiliary, codexTurn}
	case subagent == "memory_consolidation":
		return marker{polar.RoleAuxiliary, codexSubagent}
	case subagent != "":
		return marker{polar.RoleSubagent, codexSubagent}
	case headers[codexParent] != "":
		return marker{polar.RoleSubagent, codexParent}
	case source == "subagent":
		return marker{polar.RoleSubagent, codexTurn}
	}
	return marker{}
}

// phrase is a piece of a harness's own prompts.
type phrase struct {
	text string
	marker
}

// orders are what harnesses put last, in the user's name, to a conversation
// that has to become shorter or needs a decision, whether they take the tools
// away or not.
var orders = []phrase{
	{"context checkpoint compaction", marker{polar.RoleCompaction, summaryPrompt}},                        // Codex
	{"critical: respond with text only", marker{polar.RoleCompaction, summaryPrompt}},                     // Claude Code
	{"create a detailed summary of the conversation so far", marker{polar.RoleCompaction, summaryPrompt}}, // Claude Code, earlier
	{"the component that summarizes a conversation", marker{polar.RoleCompaction, summaryPrompt}},         // Qwen Code
	{"determine who should logically speak next", marker{polar.RoleAuxiliary, routerPrompt}},              // Gemini CLI, Qwen Code
}

// errands are what harnesses ask a model without tools.
var errands = []phrase{
	{"context summarization a", marker{polar.RoleCompaction, summaryPrompt}},     // opencode's agent, Pi's assistant
	{"<state_snapshot>", marker{polar.RoleCompaction, summaryPrompt}},            // Gemini CLI, Qwen Code
	{"context-aware state summary", marker{polar.RoleCompaction, summaryPrompt}}, // OpenHands
	{"title generator", marker{polar.RoleAuxiliary, titlePrompt}},                // opencode
	{"generate a title", marker{polar.RoleAuxiliary, titlePrompt}},
	{"sentence-case title", marker{polar.RoleAuxiliary, titlePrompt}}, // Claude Code
	{"isnewtopic", marker{polar.RoleAuxiliary, titlePrompt}},          // Claude Code, earlier
	{"task routing ai", marker{polar.RoleAuxiliary, routerPrompt}},    // Gemini CLI
	{"complexity_score", marker{polar.RoleAuxiliary, routerPrompt}},   // Gemini CLI
}

// askedFor reads the role from what is asked. A phrase that the task's own
// instruction has says nothing.
func askedFor(c *polar.Call, instruction string) marker {
	last := lastUserText(c.Messages)
	if m := find(orders, instruction, last); m.role != "" {
		return m
	}
	if len(c.Tools) > 0 {
		return marker{}
	}
	if m := find(errands, instruction, systemText(c.Messages), last); m.role != "" {
		return m
	}
	if strings.TrimSpace(last) == "quota" && len(c.Messages) == 1 { // Claude Code
		return marker{polar.RoleAuxiliary, quotaProbe}
	}
	return marker{}
}

// find is the marker of the first phrase that a text has.
func find(phrases []phrase, instruction string, texts ...string) marker {
	for i := range texts {
		texts[i] = strings.ToLower(texts[i])
	}
	for _, p := range phrases {
		for _, text := range texts {
			if strings.Contains(text, p.text) && !strings.Contains(strings.ToLower(instruction), p.text) {
				return p.marker
			}
		}
	}
	return marker{}
}

// lastUserText is the last message if it is a user's, but for what a harness
// adds after it as system.
func lastUserText(messages []json.RawMessage) string {
	for _, m := range slices.Backward(messages) {
		switch role(m) {
		case "system", "developer":
		case "user":
			return text(m)
		default:
			return ""
		}
	}
	return ""
}

// systemText is what stands before the first message of anyone else.
func systemText(messages []json.RawMessage) string {
	var b strings.Builder
	for _, m := range messages {
		if r := role(m); r != "system" && r != "developer" {
			break
		}
		b.WriteString(text(m))
		b.WriteByte('\n')
	}
	return b.String()
}

func text(raw json.RawMessage) string {
	m, err := llm.ParseMessage(raw)
	if err != nil {
		return ""
	}
	return m.Text()
}

// hasCompleteTask finds the tool with which Gemini CLI's sub-agents end.
func hasCompleteTask(tools []json.RawMessage) bool {
	for _, raw := range tools {
		if !bytes.Contains(raw, []byte(completeTaskNamed)) {
			continue
		}
		var tool struct {
			Function struct{ Name string }
		}
		if json.Unmarshal(raw, &tool) == nil && tool.Function.Name == "complete_task" {
			return true
		}
	}
	return false
}
