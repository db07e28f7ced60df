package clitest_test

import "slices"

// opencode is the opencode agent.
func opencode() cli {
	twoTurns := outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}}
	dead := slices.Repeat([]string{"engine_failed"}, 6)
	// After a summary opencode itself says to go on.
	goOn := `
  - when: {user: 'Continue if you have next steps', tool_results: 0}
    shell: printf 'second\n' > second.txt
  - when: {user: 'Continue if you have next steps', tool_results: 1}
    say: Both files are written.
`
	compacted := []string{"main/0 root calls=1", "compaction/1 history_rewritten calls=1", "main/2 history_rewritten calls=2"}
	return cli{
		harness: "opencode",
		wires: []wire{
			{name: "chat"},
			{name: "responses", settings: map[string]any{"api": "responses"}},
		},
		trials: map[string]trial{
			"two_turns":      {want: twoTurns},
			"parallel_tools": {want: twoTurns},
			"subagent": {
				rules: `
  - when: {user: 'Task delegate', tool_results: 0}
    call: [{tool: task, arguments: '{"description": "write child.txt", "prompt": "Part child: write child.txt.", "subagent_type": "general"}'}]
`,
				want: outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2", "subagent/0 root calls=2"}},
			},
			"mcp": {
				mcp: notes(),
				rules: `
  - when: {user: 'Task mcp', tool_results: 0}
    call: [{tool: notes_read_note, arguments: '{"which": "first"}'}]
`,
				want: outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=3"}},
			},
			"skills": {skills: "skills", want: twoTurns},
			"compaction_usage": {
				rules: goOn,
				want:  outcome{result: "compacted, completed", end: "COMPLETED", traces: compacted},
			},
			"compaction_error": {rules: goOn, want: outcome{result: "compacted, completed", end: "COMPLETED", traces: compacted, failed: []string{"context_overflow"}}},
			"cut_stream":       {want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"engine_failed"}}},
			"rate_limited":     {want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"rate_limited"}}},
			"engine_dies":      {want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns":   {want: outcome{result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead}},
			"eight_at_once":    {want: twoTurns},
		},
	}
}
