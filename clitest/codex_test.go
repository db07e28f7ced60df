package clitest_test

import "slices"

// codex is OpenAI's Codex CLI.
func codex() cli {
	twoTurns := outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}}
	retried := func(what string) outcome {
		return outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{what}}
	}
	dead := slices.Repeat([]string{"engine_failed"}, 6)
	return cli{
		harness: "codex",
		wires:   []wire{{name: "responses"}},
		trials: map[string]trial{
			"two_turns":      {want: twoTurns},
			"parallel_tools": {want: twoTurns},
			"subagent": {
				rules: `
  - when: {user: 'Task delegate', tool_results: 0}
    call: [{tool: multi_agent_v1__spawn_agent, arguments: '{"message": "Part child: write child.txt."}'}]
  - when: {user: 'Task delegate', tool_result: '"agent_id":"(?P<id>[^"]+)"'}
    call: [{tool: multi_agent_v1__wait_agent, arguments: '{"targets": ["{{.id}}"], "timeout_ms": 120000}'}]
  - when: {user: 'subagent_notification'}
    say: The other agent has written child.txt.
`,
				want: outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=3", "subagent/0 root calls=2"}},
			},
			"mcp": {
				mcp: notes(),
				rules: `
  - when: {user: 'Task mcp', tool_results: 0}
    call: [{tool: mcp__notes__read_note, arguments: '{}'}]
`,
				want: outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=3"}},
			},
			"skills": {skills: "skills", want: twoTurns},
			// Nobody tells it the window but the engine.
			"compaction_usage": {
				want: outcome{
					result: "compacted, completed", end: "COMPLETED",
					traces: []string{"main/0 root calls=1", "compaction/1 history_rewritten calls=1", "main/2 history_rewritten calls=2"},
				},
			},
			// It compacts by the usage it is told only.
			"compaction_error": {want: outcome{
				result: "ends: blame agent", end: "ERROR agent harness", traces: []string{"main/0 root calls=1"}, failed: []string{"context_overflow"},
			}},
			"cut_stream":     {want: retried("engine_failed")},
			"rate_limited":   {want: retried("rate_limited")},
			"engine_dies":    {want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns": {want: outcome{result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead}},
			"eight_at_once":  {want: twoTurns},
		},
	}
}
