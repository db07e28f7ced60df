package clitest_test

// openHandsSDK is the agent of the OpenHands SDK.
func openHandsSDK() cli {
	twoTurns := outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}}
	// The SDK's own waits between tries begin at eight seconds.
	quick := map[string]any{"model_kwargs": map[string]any{"num_retries": 2, "retry_min_wait": 0, "retry_max_wait": 1}}
	dead := []string{"engine_failed", "engine_failed"}
	return cli{
		harness: "openhands_sdk",
		slow:    true,
		wires:   []wire{{name: "chat"}},
		trials: map[string]trial{
			"two_turns":      {want: twoTurns},
			"parallel_tools": {want: twoTurns},
			"subagent":       {not: "the preset offers no sub-agents"},
			"mcp": {
				mcp: notes(),
				rules: `
  - when: {user: 'Task mcp', tool_results: 0}
    call: [{tool: read_note, arguments: '{"which": "first"}'}]
`,
				want: outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=3"}},
			},
			"skills":           {skills: "skills", want: twoTurns},
			"compaction_usage": {not: "the SDK condenses by the number of events"},
			"compaction_error": {
				rules: `
  - when: {user: 'summari[sz]e the events', has_shell: false}
    say: The user asked for two files, first.txt and then second.txt. first.txt is written and has one line. Next part, second.txt.
`,
				want: outcome{
					result: "compacted, completed", end: "COMPLETED", failed: []string{"context_overflow"},
					traces: []string{"main/0 root calls=1", "compaction/1 history_rewritten calls=1", "main/2 history_rewritten calls=2"},
				},
			},
			"cut_stream":     {settings: quick, want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"engine_failed"}}},
			"rate_limited":   {settings: quick, want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"rate_limited"}}},
			"engine_dies":    {settings: quick, want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns": {settings: quick, want: outcome{result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead}},
			"eight_at_once":  {want: twoTurns},
		},
	}
}
