package trajectory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/llm"
	"polar/trajectory"
)

// said is one message of a harness: who, and what.
type said [2]string

// request is a call as a harness makes it. Its prompt is rendered as a chat
// template would: the tools, then the messages, each ended by '|'.
type request struct {
	headers  map[string]string
	tools    string
	messages []said
	answer   string
}

const task = "Create hello.txt containing hello"

func recorded(list []request) []polar.Call {
	out := make([]polar.Call, len(list))
	for i, r := range list {
		c := polar.Call{
			ID: polar.CallID(fmt.Sprintf("c%d", i)), Start: time.Unix(int64(i), 0), Delivered: true, Headers: r.headers,
			Finish: llm.FinishStop, Engine: llm.Engine{Kind: "vllm"}, Reply: json.RawMessage(assistant(r.answer)),
		}
		prompt := ""
		for name := range strings.FieldsSeq(r.tools) {
			c.Tools = append(c.Tools, json.RawMessage(`{"type":"function","function":{"name":"`+name+`"}}`))
			prompt += "#" + name
		}
		for _, m := range r.messages {
			c.Messages = append(c.Messages, json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, m[0], m[1])))
			prompt += m[0] + ":" + m[1] + "|"
		}
		c.Prompt = polar.NewPrompt(nil, 0, tokens(prompt+"assistant:"))
		for _, id := range tokens(r.answer + "|") {
			c.Sampled = append(c.Sampled, llm.Token{ID: id, Logprob: -1})
		}
		out[i] = c
	}
	return out
}

// then is a conversation that goes on.
func then(before []said, more ...said) []said { return slices.Concat(before, more) }

func codexHeaders(thread, metadata string, more ...string) map[string]string {
	h := map[string]string{
		"session-id": "01a1", "thread-id": thread, "originator": "codex_exec",
		// as it is recorded: cut off
		"x-codex-turn-metadata": `{"session_id":"01a1","thread_id":"` + thread + `","window_number":0,` + metadata + `,"workspaces":{"/repo`,
	}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

var (
	codexOpening = []said{
		{"developer", "You are a coding agent running in the Codex CLI"}, {"user", "<environment_context>\n  <cwd>/repo</cwd>"}, {"user", task},
	}
	codexTools    = "exec_command write_stdin multi_agent_v1"
	claudeOpening = []said{
		{"system", "You are an interactive agent that helps users"},
		{"user", "<system-reminder>\nAs you answer</system-reminder>" + task},
		{"system", "Available agent types for the Agent tool"},
	}
	claudeTools  = "Agent Bash Edit Read Write"
	claude       = map[string]string{"x-app": "cli", "x-claude-code-session-id": "ab9a"}
	claudeChild  = map[string]string{"x-app": "cli", "x-claude-code-session-id": "ab9a", "x-claude-code-agent-id": "a0fe"}
	open         = map[string]string{"x-session-id": "ses_1", "x-session-affinity": "ses_1"}
	openChild    = map[string]string{"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}
	openOpening  = []said{{"system", "You are opencode, an interactive CLI tool"}, {"user", `"` + task + `"`}}
	openTools    = "bash edit task write"
	geminiTools  = "list_directory write_file invoke_agent"
	geminiSystem = said{"system", "You are Gemini CLI, an autonomous CLI agent"}
	summary      = strings.Repeat("The file hello.txt was created and holds hello. ", 4)
)

func TestRolesOfHarnesses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		calls []request
		want  []string
	}{
		"Codex with a sub-agent, on whose thread the task is quoted": {
			[]request{
				{codexHeaders("t1", `"request_kind":"turn","thread_source":"user"`), codexTools, codexOpening, "Delegating."},
				{
					codexHeaders("t2", `"request_kind":"turn","thread_source":"subagent"`, "x-openai-subagent", "collab_spawn", "x-codex-parent-thread-id", "t1"),
					"exec_command write_stdin", then(codexOpening[:2], said{"user", task + ". SUBAGENT"}), "Done.",
				},
				{codexHeaders("t1", `"request_kind":"turn","thread_source":"user"`), codexTools, then(codexOpening, said{"assistant", "Delegating."}, said{"tool", "Done."}), "All done."},
			},
			[]string{"main instruction root/0 c0 c2", "subagent x-openai-subagent root/0 c1"},
		},
		"Codex's sub-agent by each marker alone": {
			[]request{
				{codexHeaders("t1", `"request_kind":"turn"`), codexTools, codexOpening, "Delegating."},
				{codexHeaders("t2", `"request_kind":"turn"`, "x-codex-parent-thread-id", "t1"), codexTools, then(codexOpening[:2], said{"user", "a"}), "A."},
				{codexHeaders("t3", `"thread_source":"subagent"`), codexTools, then(codexOpening[:2], said{"user", "b"}), "B."},
			},
			[]string{"main instruction root/0 c0", "subagent x-codex-parent-thread-id root/0 c1", "subagent x-codex-turn-metadata root/0 c2"},
		},
		"Codex's compaction, prewarming and memories": {
			[]request{
				{codexHeaders("t1", `"request_kind":"prewarm"`), codexTools, codexOpening, "ok"},
				{codexHeaders("t1", `"request_kind":"turn"`), codexTools, codexOpening, "Step."},
				{codexHeaders("t1", `"request_kind":"compaction"`), "", then(codexOpening, said{"assistant", "Step."}, said{"user", "Shorter."}), summary},
				{codexHeaders("t1", `"request_kind":"turn"`), codexTools, then(codexOpening, said{"user", "Here is the summary: " + summary}), "Done."},
				{codexHeaders("t9", `"request_kind":"turn"`, "x-openai-subagent", "memory_consolidation"), codexTools, then(codexOpening[:1], said{"user", "m"}), "M."},
				{codexHeaders("t8", `"request_kind":"turn"`, "x-openai-subagent", "compact"), "", then(codexOpening[:1], said{"user", "c"}), "C."},
			},
			[]string{
				"auxiliary x-codex-turn-metadata root/0 c0",
				"main instruction fork/1 of trace-000 c1",
				"compaction x-codex-turn-metadata history_rewritten/2 of trace-001 c2",
				"main same_setup history_rewritten/3 of trace-002 c3",
				"auxiliary x-openai-subagent root/0 c4",
				"compaction x-openai-subagent history_rewritten/4 of trace-003 c5",
			},
		},
		"Codex's compaction by its prompt alone": {
			[]request{
				{nil, codexTools, codexOpening, "Step."},
				{nil, "", then(codexOpening, said{"assistant", "Step."}, said{"user", "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary"}), "sum"},
				{nil, codexTools, then(codexOpening, said{"user", "Another language model started: sum"}), "Done."},
			},
			[]string{
				"main instruction root/0 c0", "compaction summary_prompt history_rewritten/1 of trace-000 c1",
				"main same_setup history_rewritten/2 of trace-001 c2",
			},
		},
		"Claude Code with a sub-agent": {
			[]request{
				{claude, claudeTools, claudeOpening, "Delegating."},
				{claudeChild, "Bash Edit", []said{{"system", "You are an agent for Claude Code"}, {"user", "Create the file hello.txt. SUBAGENT-TASK"}}, "Step."},
				{claudeChild, "Bash Edit", []said{{"system", "You are an agent for Claude Code"}, {"user", "Create the file hello.txt. SUBAGENT-TASK"}, {"assistant", "Step."}, {"tool", "hello"}}, "Done."},
				{claude, claudeTools, then(claudeOpening, said{"assistant", "Delegating."}, said{"tool", "Done."}), "All done."},
			},
			[]string{"main instruction root/0 c0 c3", "subagent x-claude-code-agent-id root/0 c1 c2"},
		},
		"Claude Code's compaction extends the conversation, with its tools, and is asked for twice": {
			[]request{
				{claude, claudeTools, claudeOpening, "Step."},
				{claude, claudeTools, then(claudeOpening, said{"assistant", "Step."}, said{"tool", "hello"}, said{"user", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."}), "no tags"},
				{claude, claudeTools, then(claudeOpening, said{"assistant", "Step."}, said{"tool", "hello"}, said{"user", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."}), summary},
				{claude, claudeTools, []said{claudeOpening[0], {"user", "This session is being continued: " + summary}, {"system", "Today's date"}}, "Step two."},
			},
			[]string{
				"main instruction root/0 c0",
				"compaction summary_prompt fork/1 of trace-000 c1",
				"compaction summary_prompt fork/2 of trace-000 c2",
				"main same_setup history_rewritten/3 of trace-002 c3",
			},
		},
		"Claude Code's compaction after a prompt that was too long, with the summary in tags": {
			[]request{
				{claude, claudeTools, claudeOpening, "Step."},
				{claude, claudeTools, []said{claudeOpening[0], {"user", "[earlier conversation truncated for compaction retry]"}, {"assistant", "Step."}, {"tool", "hello"}, {"user", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."}}, "<analysis>\nAll was done.\n</analysis>\n\n<summary>\n" + summary + "\n</summary>"},
				{claude, claudeTools, []said{claudeOpening[0], {"user", "This session is being continued.\n\nSummary:\n" + summary}, {"system", "Today's date"}}, "Step two."},
			},
			[]string{
				"main instruction root/0 c0",
				"compaction summary_prompt history_rewritten/1 of trace-000 c1",
				"main same_setup history_rewritten/2 of trace-001 c2",
			},
		},
		"Claude Code's quota probe and topic": {
			[]request{
				{claude, "", []said{{"user", "quota"}}, "#"},
				{claude, "", []said{{"system", "Extract a title. Answer as JSON with 'isNewTopic' and 'title'"}, {"user", task}}, "{}"},
				{claude, claudeTools, claudeOpening, "Done."},
			},
			[]string{"auxiliary quota_probe root/0 c0", "auxiliary title_prompt root/0 c1", "main instruction root/0 c2"},
		},
		"opencode with title, sub-agent and compaction": {
			[]request{
				{open, "", []said{{"system", "You are a title generator. You output ONLY a thread title."}, {"user", "Generate a title for this conversation:\n"}, {"user", `"` + task + `"`}}, "Create hello file"},
				{open, openTools, openOpening, "Delegating."},
				{openChild, "bash edit write", []said{openOpening[0], {"user", "Create the file hello.txt. SUBAGENT-TASK"}}, "Done."},
				{open, openTools, then(openOpening, said{"assistant", "Delegating."}, said{"tool", "Done."}), "Step."},
				{open, "", []said{{"system", "You are a context summarization agent."}, {"user", "Here is the conversation so far:\n<conversation>…"}}, summary},
				{open, openTools, []said{openOpening[0], {"user", "What did we do so far?"}, {"assistant", summary}, {"user", "Continue if you have next steps"}}, "All done."},
			},
			[]string{
				"auxiliary title_prompt root/0 c0", "main instruction root/0 c1 c3", "subagent x-parent-session-id root/0 c2",
				"compaction summary_prompt history_rewritten/1 of trace-001 c4", "main same_setup history_rewritten/2 of trace-003 c5",
			},
		},
		"Gemini CLI with routers and a sub-agent that compresses": {
			[]request{
				{nil, "", []said{{"system", "You are a specialized Task Routing AI. Assign a **Complexity Score**"}, {"user", "<session_context>"}, {"user", task}}, `{"complexity_score":5}`},
				{nil, geminiTools, []said{geminiSystem, {"user", "<session_context>\n" + task}}, "Delegating."},
				{nil, "", []said{{"system", "You are a specialized Task Routing AI."}, {"user", "SUBAGENT-TASK"}}, `{"complexity_score":5}`},
				{nil, "write_file complete_task", []said{geminiSystem, {"user", "SUBAGENT-TASK"}}, "Step."},
				{nil, "", []said{{"system", "Distil the history into a <state_snapshot>"}, {"user", "SUBAGENT-TASK"}, {"assistant", "Step."}, {"user", "First, reason in your scratchpad."}}, summary},
				{nil, "write_file complete_task", []said{geminiSystem, {"user", summary}, {"assistant", "Got it. Thanks!"}}, "Done."},
				{nil, geminiTools, []said{geminiSystem, {"user", "<session_context>\n" + task}, {"assistant", "Delegating."}, {"tool", "Done."}}, "All done."},
			},
			[]string{
				"auxiliary router_prompt root/0 c0", "main instruction root/0 c1 c6", "auxiliary router_prompt root/0 c2",
				"subagent complete_task_tool root/0 c3", "compaction summary_prompt history_rewritten/1 of trace-003 c4",
				"subagent complete_task_tool history_rewritten/2 of trace-004 c5",
			},
		},
		"Qwen Code with a sub-agent, which no header tells": {
			[]request{
				{nil, "agent edit write_file", []said{{"system", "You are Qwen Code"}, {"user", "This is the Qwen Code."}, {"assistant", "Got it. Thanks for the context!"}, {"user", task}}, "Delegating."},
				{nil, "edit write_file", []said{{"system", "You are a general-purpose agent"}, {"user", "SUBAGENT-TASK"}}, "Step."},
				{nil, "edit write_file", []said{{"system", "You are a general-purpose agent"}, {"user", "SUBAGENT-TASK"}, {"assistant", "Step."}, {"tool", "ok"}}, "Done."},
				{nil, "edit write_file", []said{{"system", "You are a general-purpose agent"}, {"user", "ANOTHER-TASK"}}, "Done too."},
			},
			[]string{"main instruction root/0 c0", "subagent other_system_prompt root/0 c1 c2", "subagent same_setup root/0 c3"},
		},
		"Qwen Code's question of who speaks next, which has a tool to answer with": {
			[]request{
				{nil, "agent edit write_file", []said{{"system", "You are Qwen Code"}, {"user", task}}, "Step."},
				{nil, "respond_in_schema", []said{{"assistant", "Step."}, {"user", "Analyze *only* your immediately preceding response. Determine who should logically speak next: the 'user' or the 'model' (you)."}}, "user"},
			},
			[]string{"main instruction root/0 c0", "auxiliary router_prompt history_rewritten/1 of trace-000 c1"},
		},
		"Qwen Code's compaction, after which its own words open the answer": {
			[]request{
				{nil, "agent edit write_file", []said{{"system", "You are Qwen Code"}, {"user", task}}, "Step."},
				{nil, "agent edit write_file", []said{{"system", "You are Qwen Code"}, {"user", task}, {"assistant", "Step."}, {"tool", "ok"}, {"user", "You are the component that summarizes a conversation when its context window is about to overflow. […] Then, produce the <state_snapshot> XML."}}, "<analysis>Hm.</analysis>\n<state_snapshot>" + summary + "</state_snapshot>"},
				{nil, "agent edit write_file", []said{{"system", "You are Qwen Code"}, {"user", summary + "\n\nResume the prior task using the summary above."}, {"assistant", "Got it. Thanks for the additional context!"}}, "Step two."},
				{nil, "agent edit write_file", []said{{"system", "You are Qwen Code"}, {"user", "<system-reminder>"}, {"user", summary + "\n\nResume the prior task using the summary above."}, {"assistant", "Got it. Thanks for the additional context! Step two."}, {"tool", "ok"}}, "Done."},
			},
			[]string{
				"main instruction root/0 c0", "compaction summary_prompt fork/1 of trace-000 c1",
				"main same_setup history_rewritten/2 of trace-001 c2", "main same_setup history_rewritten/3 of trace-001 c3",
			},
		},
		"Pi's compaction, after which the task stays": {
			[]request{
				{nil, "read bash edit write", []said{{"system", "You are an expert coding assistant operating inside pi"}, {"user", task}}, "Step."},
				{nil, "", []said{{"system", "You are a context summarization assistant."}, {"user", "<conversation>\n\n</conversation>\n\nCreate a structured context checkpoint summary"}}, "sum"},
				{nil, "read bash edit write", []said{{"system", "You are an expert coding assistant operating inside pi"}, {"user", "compacted into the following summary:\nsum"}, {"user", task}, {"assistant", "Step."}, {"tool", "hello"}}, "Done."},
			},
			[]string{
				"main instruction root/0 c0", "compaction summary_prompt history_rewritten/1 of trace-000 c1",
				"main same_setup history_rewritten/2 of trace-000 c2",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRoles(t, task, test.calls, test.want)
		})
	}
}

// checkRoles builds both ways and both orders; per_request must give each call
// the role it has in its conversation.
func checkRoles(t *testing.T, instruction string, list []request, want []string) {
	t.Helper()
	record := trajectory.Record{Instruction: instruction, Calls: recorded(list)}
	merged := build(t, "prefix_merging", `{"train_roles":["main","subagent","compaction","auxiliary"]}`, record)
	got := []string{}
	roles := map[polar.CallID]polar.Role{}
	for _, tr := range merged.Traces {
		got = append(got, describe(t, tr))
		for _, id := range tr.Calls {
			roles[id] = tr.Role
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, tr := range build(t, "per_request", `{}`, record).Traces {
		if tr.Role != roles[tr.Calls[0]] {
			t.Errorf("per_request says %s is %s", tr.Calls[0], tr.Role)
		}
	}
	backwards := trajectory.Record{Instruction: instruction, Calls: slices.Clone(record.Calls)}
	slices.Reverse(backwards.Calls)
	again := build(t, "prefix_merging", `{"train_roles":["main","subagent","compaction","auxiliary"]}`, backwards)
	if diff := cmp.Diff(marshal(t, merged), marshal(t, again)); diff != "" {
		t.Errorf("another order of arrival: %s", diff)
	}
}

func build(t *testing.T, strategy, config string, r trajectory.Record) polar.Trajectory {
	t.Helper()
	tr, err := builder(t, strategy, config)(r)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func describe(t *testing.T, tr polar.Trace) string {
	t.Helper()
	var evidence string
	if err := json.Unmarshal(tr.Metadata["role_evidence"], &evidence); err != nil {
		t.Fatal(err)
	}
	s := fmt.Sprintf("%s %s %s/%d", tr.Role, evidence, tr.SplitReason, tr.Segment)
	if tr.ParentID != "" {
		s += " of " + string(tr.ParentID)
	}
	for _, id := range tr.Calls {
		s += " " + string(id)
	}
	return s
}
