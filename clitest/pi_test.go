package clitest_test

// pi is the pi coding agent. It has neither sub-agents nor an MCP client.
func pi() cli {
	twoTurns := outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}}
	dead := []string{"engine_failed", "engine_failed", "engine_failed", "engine_failed"}
	// The summary of a turn comes before its last tool result.
	goOn := `
  - when: {user: 'Next part, second', tool_results: 1, has_shell: true}
    shell: printf 'second\n' > second.txt
  - when: {user: 'Next part, second', tool_results: 2, has_shell: true}
    say: Both files are written.
`
	compacting := map[string]any{"context_window": 200000, "compaction": map[string]any{"keepRecentTokens": 10}}
	compacted := []string{"main/0 root calls=1", "compaction/1 history_rewritten calls=1", "main/2 history_rewritten calls=2"}
	return cli{
		harness: "pi",
		wires: []wire{
			{name: "chat"},
			{name: "responses", settings: map[string]any{"api_type": "openai-responses"}},
			{name: "anthropic", settings: map[string]any{"api_type": "anthropic-messages"}},
			{name: "gemini", settings: map[string]any{"api_type": "google-generative-ai"}},
		},
		trials: map[string]trial{
			"two_turns":        {want: twoTurns},
			"parallel_tools":   {want: twoTurns},
			"subagent":         {not: "pi has no sub-agents"},
			"mcp":              {not: "pi has no MCP client"},
			"skills":           {skills: "skills", want: twoTurns},
			"compaction_usage": {settings: compacting, rules: goOn, want: outcome{result: "compacted, completed", end: "COMPLETED", traces: compacted}},
			"compaction_error": {settings: compacting, rules: goOn, want: outcome{result: "compacted, completed", end: "COMPLETED", traces: compacted, failed: []string{"context_overflow"}}},
			"cut_stream":       {want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"engine_failed"}}},
			"rate_limited":     {want: outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{"rate_limited"}}},
			"engine_dies":      {want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns":   {want: outcome{result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead}},
			"eight_at_once":    {want: twoTurns},
		},
	}
}
