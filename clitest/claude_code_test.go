package clitest_test

import "slices"

// claudeCode is Anthropic's Claude Code.
func claudeCode() cli {
	twoTurns := outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}}
	threeTurns := outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=3"}}
	retried := func(what string) outcome {
		return outcome{result: "retried, completed", end: "COMPLETED", traces: []string{"main/0 root calls=2"}, failed: []string{what}}
	}
	dead := slices.Repeat([]string{"engine_failed"}, 4)
	const summary = `
  - when: {user: 'Respond with TEXT ONLY'}
    say: |-
      <analysis>There were two files to write.</analysis>
      <summary>
      The user wants two files, first.txt and then second.txt, in the work folder. The file first.txt is written.
      Next part, second.txt.
      </summary>
`
	return cli{
		harness: "claude_code",
		wires:   []wire{{name: "anthropic"}},
		trials: map[string]trial{
			"two_turns":      {want: twoTurns},
			"parallel_tools": {want: twoTurns},
			"subagent": {
				rules: `
  - when: {user: 'Task delegate', tool_results: 0}
    call: [{tool: Agent, arguments: '{"description": "write a file", "prompt": "Part child: write child.txt.", "run_in_background": false}'}]
`,
				want: outcome{result: "completed", end: "COMPLETED", traces: []string{"main/0 root calls=2", "subagent/0 root calls=2"}},
			},
			"mcp": {
				mcp: notes(),
				rules: `
  - when: {user: 'Task mcp', tool_results: 0}
    call: [{tool: mcp__notes__read_note, arguments: '{}'}]
`,
				want: threeTurns,
			},
			"skills": {
				skills: "skills",
				rules: `
  - when: {user: 'Task skills', tool_results: 0}
    call: [{tool: Skill, arguments: '{"skill": "knitting"}'}]
  - when: {user: 'skills/(?P<skill>knitting)\s+Cast on forty stitches', tool_results: 0}
    shell: echo {{.skill}} > skill.txt
  - when: {user: 'Cast on forty stitches', tool_results: 1}
    say: I wrote down what I know.
`,
				want: threeTurns,
			},
			// It leaves the last turn as it is, and does nothing if what it could
			// make shorter is not the bulk of the prompt.
			"compaction_usage": {
				settings: map[string]any{"context_window": 100000},
				rules: summary + `
  - when: {user: 'Task compaction', tool_results: 1}
    shell: cat first.txt
    usage: {prompt_tokens: 68000}
`,
				want: outcome{
					result: "compacted, completed", end: "COMPLETED",
					traces: []string{"main/0 root calls=2", "compaction/1 fork calls=1", "main/2 history_rewritten calls=2"},
				},
			},
			"compaction_error": {
				rules: summary,
				want: outcome{
					result: "compacted, completed", end: "COMPLETED",
					traces: []string{"main/0 root calls=1", "compaction/1 history_rewritten calls=1", "main/2 history_rewritten calls=2"},
					failed: []string{"context_overflow"},
				},
			},
			"cut_stream":     {want: retried("engine_failed")},
			"rate_limited":   {want: retried("rate_limited")},
			"engine_dies":    {want: outcome{result: "ends: blame service", end: "ERROR service engine", traces: []string{"main/0 root calls=1"}, failed: dead}},
			"engine_returns": {want: outcome{result: "run again, completed", end: "COMPLETED", attempt: 2, traces: []string{"main/0 root calls=2"}, failed: dead}},
			"eight_at_once":  {want: twoTurns},
		},
	}
}
