package clitest_test

import "slices"

// geminiCLI is Google's Gemini CLI.
func geminiCLI() cli {
	completed := func(traces ...string) outcome {
		return outcome{result: "completed", end: "COMPLETED", traces: traces}
	}
	retried := func(what string) outcome {
		return outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{what}}
	}
	dead := slices.Repeat([]string{"engine_failed"}, 3)
	return cli{
		harness: "gemini_cli",
		wires:   []wire{{name: "gemini"}},
		trials: map[string]trial{
			"two_turns":      {want: completed("main/0 root calls=2")},
			"parallel_tools": {want: completed("main/0 root calls=2")},
			"subagent": {
				rules: `
  - when: {user: 'Part child', tool_results: 1}
    call: [{tool: complete_task, arguments: '{"result": {"response": "child.txt is written."}}'}]
  - when: {user: 'Task delegate', tool_results: 0}
    call: [{tool: invoke_agent, arguments: '{"agent_name": "generalist", "prompt": "Part child: write child.txt."}'}]
`,
				want: completed("main/0 root calls=2", "subagent/0 root calls=2"),
			},
			"mcp": {
				mcp: notes(),
				rules: `
  - when: {user: 'Task mcp', tool_results: 0}
    call: [{tool: mcp_notes_read_note, arguments: '{}'}]
`,
				want: completed("main/0 root calls=3"),
			},
			"skills": {skills: "skills", want: completed("main/0 root calls=2")},
			// It compresses only what came before a message of the user, and a task
			// has one such message.
			"compaction_usage": {
				settings: map[string]any{"context_window": 200000},
				want:     outcome{result: "not compacted, completed", end: "COMPLETED", traces: []string{"main/0 root calls=3"}},
			},
			"compaction_error": {want: outcome{
				result: "ends: blame agent", end: "ERROR agent harness", traces: []string{"main/0 root calls=1"}, failed: []string{"context_overflow"},
			}},
			"cut_stream":   {want: retried("engine_failed")},
			"rate_limited": {want: retried("rate_limited")},
			"engine_dies":  {want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns": {want: outcome{
				result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead,
			}},
			"eight_at_once": {want: completed("main/0 root calls=2")},
		},
	}
}
