package clitest_test

import "slices"

// qwenCode is Alibaba's Qwen Code.
func qwenCode() cli {
	completed := func(traces ...string) outcome {
		return outcome{result: "completed", end: "COMPLETED", traces: traces}
	}
	retried := func(what string) outcome {
		return outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{what}}
	}
	// After a compaction the first answer comes back as one with words that Qwen
	// Code put before it, so that the next prompt does not follow from it.
	compacted := func(failed ...string) outcome {
		return outcome{result: "compacted, completed", end: "COMPLETED", failed: failed, traces: []string{
			"main/0 root calls=1", "compaction/1 fork calls=1", "main/2 history_rewritten calls=1", "main/3 history_rewritten calls=1",
		}}
	}
	// It tries for as long as it always does, whatever it is told.
	dead := slices.Repeat([]string{"engine_failed"}, 7)
	const summary = `
  - when: {user: 'produce the <state_snapshot> XML'}
    say: |-
      <analysis>There were two files to write.</analysis>
      <state_snapshot>
      The user wants two files, first.txt and then second.txt, in the work folder. The file first.txt is written.
      Next part, second.txt.
      </state_snapshot>
`
	return cli{
		harness: "qwen_code",
		wires:   []wire{{name: "chat"}},
		trials: map[string]trial{
			"two_turns":      {want: completed("main/0 root calls=2")},
			"parallel_tools": {want: completed("main/0 root calls=2")},
			"subagent": {
				rules: `
  - when: {user: 'Task delegate', tool_results: 0}
    call: [{tool: agent, arguments: '{"description": "write a file", "prompt": "Part child: write child.txt.", "subagent_type": "general-purpose", "run_in_background": false}'}]
`,
				want: completed("main/0 root calls=2", "subagent/0 root calls=2"),
			},
			"mcp": {
				mcp: notes(),
				rules: `
  - when: {user: 'Task mcp', tool_results: 0}
    call: [{tool: tool_call, arguments: '{"name": "mcp__notes__read_note", "arguments": {}}'}]
`,
				want: completed("main/0 root calls=3"),
			},
			// It tells of skills in the name of the user.
			"skills": {
				skills: "skills",
				rules: `
  - when: {user: '(?s)(?P<skill>knitting).*Task skills', tool_results: 0}
    shell: echo {{.skill}} > skill.txt
`,
				want: completed("main/0 root calls=2"),
			},
			"compaction_usage": {
				settings: map[string]any{"context_window": 220000},
				rules:    summary,
				want:     compacted(),
			},
			"compaction_error": {rules: summary, want: compacted("context_overflow")},
			"cut_stream":       {want: retried("engine_failed")},
			"rate_limited":     {want: retried("rate_limited")},
			"engine_dies":      {want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns": {want: outcome{
				result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead,
			}},
			"eight_at_once": {want: completed("main/0 root calls=2")},
		},
	}
}
