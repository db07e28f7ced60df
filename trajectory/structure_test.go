package trajectory_test

import (
	"strings"
	"testing"
)

func TestRolesByStructure(t *testing.T) {
	t.Parallel()
	var (
		system  = said{"system", "You are an agent"}
		helper  = said{"system", "You help"}
		opening = []said{system, {"user", "do it"}}
	)
	tests := map[string]struct {
		instruction string
		calls       []request
		want        []string
	}{
		"the first with tools is main when nobody knows the instruction": {
			"",
			[]request{
				{nil, "", []said{helper, {"user", "is this hard?"}}, "no"},
				{nil, "ls rm", opening, "Step."},
				{nil, "ls", []said{helper, {"user", "sub"}}, "a much longer answer than the main one gave"},
			},
			[]string{"auxiliary no_tools root/0 c0", "main first_with_tools root/0 c1", "subagent other_system_prompt root/0 c2"},
		},
		"an instruction that nobody was told decides nothing": {
			"something else",
			[]request{{nil, "ls", opening, "Done."}},
			[]string{"main first_with_tools root/0 c0"},
		},
		"the instruction decides against the first with tools": {
			" do it\n",
			[]request{
				{nil, "ls", []said{helper, {"user", "look around"}}, "I see."},
				{nil, "ls rm", opening, "Done."},
			},
			[]string{"subagent other_system_prompt root/0 c0", "main instruction root/0 c1"},
		},
		"the instruction is told to a sub-agent too, which comes later": {
			"do it",
			[]request{
				{nil, "ls rm", opening, "Delegating."},
				{nil, "ls", []said{system, {"user", "You are to do it"}}, "Done."},
			},
			[]string{"main instruction root/0 c0", "subagent other_tools root/0 c1"},
		},
		"a question beside the task has the instruction and no tools": {
			"do it",
			[]request{
				{nil, "", []said{helper, {"user", "Rate: do it"}}, "7"},
				{nil, "ls", opening, "Done."},
			},
			[]string{"auxiliary no_tools root/0 c0", "main instruction root/0 c1"},
		},
		"without tools the most tokens are main's, and nothing is thrown away": {
			"",
			[]request{
				{nil, "", []said{helper, {"user", "plan"}}, "short"},
				{nil, "", opening, "a long answer"},
				{nil, "", then(opening, said{"assistant", "a long answer"}, said{"user", "go on"}), "more"},
			},
			[]string{"subagent other_system_prompt root/0 c0", "main most_tokens root/0 c1 c2"},
		},
		"the same agent started twice is main twice": {
			"",
			[]request{{nil, "ls", opening, "Done."}, {nil, "ls", []said{system, {"user", "then this"}}, "Done too."}},
			[]string{"main first_with_tools root/0 c0", "main same_setup root/0 c1"},
		},
		"a summary without a known prompt": {
			"",
			[]request{
				{nil, "ls", opening, "Step."},
				{nil, "", []said{helper, {"user", "Please condense this talk"}}, summary},
				{nil, "ls", []said{system, {"user", "So far: " + summary}}, "Done."},
			},
			[]string{
				"main first_with_tools root/0 c0", "compaction quoted_summary history_rewritten/1 of trace-000 c1",
				"main same_setup history_rewritten/2 of trace-001 c2",
			},
		},
		"a summary that nobody goes on from is beside the task": {
			"",
			[]request{
				{nil, "ls", opening, "Step."},
				{nil, "", []said{helper, {"user", "Please condense this talk"}}, summary},
			},
			[]string{"main first_with_tools root/0 c0", "auxiliary no_tools root/0 c1"},
		},
		"an answer that is quoted but was no summary": {
			"",
			[]request{
				{nil, "ls", opening, "Step."},
				{nil, "", []said{helper, {"user", "Which file?"}}, summary},
				{nil, "ls", []said{system, {"user", "So far: " + summary}}, "Done."},
			},
			[]string{"main first_with_tools root/0 c0", "auxiliary no_tools root/0 c1", "main same_setup root/0 c2"},
		},
		"the last turn without tools is the agent's own": {
			"",
			[]request{
				{nil, "ls", opening, "Step."},
				{nil, "", then(opening, said{"assistant", "Step."}, said{"user", "No more tools: conclude"}), "Done."},
			},
			[]string{"main first_with_tools root/0 c0", "main continues_parent history_rewritten/1 of trace-000 c1"},
		},
		"another system prompt over the same history": {
			"",
			[]request{
				{nil, "ls", opening, "Step."},
				{nil, "ls", []said{{"system", "It is Monday"}, {"user", "do it"}, {"assistant", "Step."}, {"tool", "ok"}}, "Done."},
			},
			[]string{"main first_with_tools root/0 c0", "main continues_parent history_rewritten/1 of trace-000 c1"},
		},
		"a sub-agent that is given an answer of the main one's": {
			"",
			[]request{
				{nil, "ls rm", opening, summary},
				{nil, "ls", []said{helper, {"user", "Check this: " + summary}}, "Right."},
			},
			[]string{"main first_with_tools root/0 c0", "subagent other_system_prompt root/0 c1"},
		},
		"a long talk without tools is a sub-agent's": {
			"",
			[]request{
				{nil, "ls", opening, "Step."},
				{nil, "", []said{helper, {"user", "plan"}}, "One."},
				{nil, "", []said{helper, {"user", "plan"}, {"assistant", "One."}, {"user", "more"}}, "Two."},
				{nil, "", []said{{"system", "You write"}, {"user", "write"}}, strings.Repeat("word ", 300)},
			},
			[]string{"main first_with_tools root/0 c0", "subagent other_system_prompt root/0 c1 c2", "subagent long_answer root/0 c3"},
		},
		"a task that speaks of titles and compaction is a task": {
			"Write a title generator that does CONTEXT CHECKPOINT COMPACTION",
			[]request{
				{nil, "", []said{{"user", "Write a title generator that does CONTEXT CHECKPOINT COMPACTION"}}, "Done."},
			},
			[]string{"main instruction root/0 c0"},
		},
		"a tool's description is not its name": {
			"",
			[]request{{nil, `ls","description":"complete_task`, opening, "Done."}},
			[]string{"main first_with_tools root/0 c0"},
		},
		"nothing but questions beside a task": {
			"",
			[]request{{nil, "", []said{{"user", "quota"}}, "#"}},
			[]string{"auxiliary quota_probe root/0 c0"},
		},
		"a conversation that goes on after a summary has it as context": {
			"",
			[]request{
				{nil, "ls", opening, "Step."},
				{nil, "ls", then(opening, said{"assistant", "Step."}, said{"user", "CRITICAL: Respond with TEXT ONLY"}), "sum"},
				{nil, "ls", then(opening, said{"assistant", "Step."}, said{"user", "CRITICAL: Respond with TEXT ONLY"}, said{"assistant", "sum"}, said{"user", "go on"}), "Done."},
			},
			[]string{
				"main first_with_tools root/0 c0 c2", "compaction summary_prompt fork/1 of trace-000 c1",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRoles(t, test.instruction, test.calls, test.want)
		})
	}
}
