package clitest_test

import "slices"

// miniSWEAgent is mini-SWE-agent. It ends with a command, and with one alone:
// it has neither sub-agents nor compaction nor an MCP client nor skills.
func miniSWEAgent() cli {
	submit := `
  - when: {user: 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT', min_tool_results: 1}
    shell: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT
`
	fails := func(fault string) string {
		return `
  - when: {user: 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT', min_tool_results: 1}
    fault: ` + fault + `
    shell: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT
`
	}
	twoTurns := outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}}
	// Three tries of the agent's with three of LiteLLM's each.
	dead := slices.Repeat([]string{"engine_failed"}, 9)
	return cli{
		harness: "mini_swe_agent",
		slow:    true,
		wires:   []wire{{name: "chat"}},
		trials: map[string]trial{
			"two_turns":        {rules: submit, want: twoTurns},
			"parallel_tools":   {rules: submit, want: twoTurns},
			"subagent":         {not: "mini-SWE-agent has no sub-agents"},
			"mcp":              {not: "mini-SWE-agent has no MCP client"},
			"skills":           {not: "mini-SWE-agent has no skills"},
			"compaction_usage": {not: "mini-SWE-agent does not compact"},
			"compaction_error": {want: outcome{result: "ends: blame agent", end: "ERROR agent harness", traces: []string{"main/0 root calls=1"}, failed: []string{"context_overflow"}}},
			"cut_stream":       {rules: fails("{kind: cut, after_tokens: 8, times: 1}"), want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"engine_failed"}}},
			"rate_limited":     {rules: fails(`{kind: status, status: 429, retry_after: "1", times: 3}`), want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"rate_limited"}}},
			"engine_dies":      {rules: submit, want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns":   {rules: submit, want: outcome{result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead}},
			"eight_at_once":    {rules: submit, want: twoTurns},
		},
	}
}
