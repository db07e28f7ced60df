package clitest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scenario is something that is tried with every CLI. Its name is that of its
// policy below testdata/policies.
type scenario struct {
	name string
	// tried says it in the docs.
	tried string
	// instruction is what the task asks for, and check the command that finds it
	// done. In both %d is the number of the session, of which there are several.
	instruction, check string
	sessions           int
	// engine is what becomes of the engine, and attempts how often a session may
	// be run because of it.
	engine   engineFate
	attempts int
	// waits says that the CLI mostly waits to ask again, so that many can be tried
	// at once.
	waits bool
	// everyWire says that it is tried over each wire that the CLI speaks.
	everyWire bool
	// tellsMost says that it is tried with slow CLIs too.
	tellsMost bool
	// prepare are files of testdata that the work folder begins with.
	prepare map[string]string
	// seen is what the recorded calls must have in them.
	seen string
}

// engineFate is what becomes of the engine when the first tool result is
// brought before it.
type engineFate int

const (
	engineStays engineFate = iota
	engineDies
	engineReturns // when a conversation is begun anew
)

// scenarios are in the order of the table.
func scenarios() []scenario {
	return []scenario{
		{
			name: "two_turns", tried: "a tool call that is really run, then an answer", everyWire: true, tellsMost: true,
			instruction: "Task two-turns: write the word hello to hello.txt.", check: "printf 'hello\\n' | cmp - hello.txt",
			seen: "PATH=", // of the environment, which is looked through for the host's
		},
		{
			name: "parallel_tools", tried: "two tool calls in one answer", everyWire: true,
			instruction: "Task parallel-tools: write one.txt and two.txt.", check: "test -s one.txt && test -s two.txt",
		},
		{
			name: "subagent", tried: "a sub-agent that uses a tool",
			instruction: "Task delegate: let another agent write child.txt.", check: "test -s child.txt",
		},
		{
			name: "mcp", tried: "a tool of an MCP server", prepare: map[string]string{"notes.sh": "mcp/notes.sh"},
			instruction: "Task mcp: copy the note to note.txt.", check: "grep -q 'remember the milk' note.txt",
		},
		{
			name: "skills", tried: "a skill that the CLI offers the model",
			prepare:     map[string]string{"skills/knitting/SKILL.md": "skills/knitting/SKILL.md"},
			instruction: "Task skills: write what you know to skill.txt.", check: "grep -q knitting skill.txt",
		},
		{
			name: "compaction_usage", tried: "compaction, because the usage came near the window",
			instruction: "Task compaction: write first.txt, then second.txt.", check: "test -s first.txt && test -s second.txt",
		},
		{
			name: "compaction_error", tried: "compaction, because the engine refused a prompt as too long",
			instruction: "Task compaction: write first.txt, then second.txt.", check: "test -s first.txt && test -s second.txt",
		},
		{
			name: "cut_stream", tried: "an answer that breaks off", waits: true,
			instruction: "Task cut-stream: write the word hello to hello.txt.", check: "test -s hello.txt",
		},
		{
			name: "rate_limited", tried: "a 429 with Retry-After", waits: true,
			instruction: "Task rate-limited: write the word hello to hello.txt.", check: "test -s hello.txt",
		},
		{
			name: "engine_dies", tried: "an engine that dies for good", engine: engineDies, attempts: 1, waits: true, tellsMost: true,
			instruction: "Task engine-dies: write the word hello to hello.txt.", check: "test -s hello.txt",
		},
		{
			name: "engine_returns", tried: "an engine that dies and comes back", engine: engineReturns, attempts: 2, waits: true,
			instruction: "Task engine-dies: write the word hello to hello.txt.", check: "test -s hello.txt",
		},
		{
			name: "eight_at_once", tried: "eight sessions at once on one node", sessions: atOnce,
			instruction: "Task eight-at-once: write the word word-%d to word-%[1]d.txt.", check: "test \"$(cat word-*.txt)\" = word-%d",
		},
	}
}

// numbered puts the number of a session into a text that has a place for it.
func numbered(text string, n int) string {
	if !strings.Contains(text, "%d") {
		return text
	}
	return fmt.Sprintf(text, n)
}

// policy is the scenario's, with the rules of a CLI before its own.
func (s scenario) policy(t *testing.T, rules string) string {
	t.Helper()
	name := s.name
	if s.engine != engineStays {
		name = "engine_dies"
	}
	data, err := os.ReadFile(filepath.Join("testdata", "policies", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(data), "\nrules:\n")
	if !ok {
		t.Fatalf("the policy %s has no line \"rules:\"", name)
	}
	return before + "\nrules:\n" + strings.TrimPrefix(rules, "\n") + after
}

// between is what stands between the gateway and the engine.
func (s scenario) between() func(t *testing.T, engine string) string {
	if s.engine == engineStays {
		return nil
	}
	return func(t *testing.T, engine string) string {
		t.Helper()
		return mortal(t, engine, s.engine == engineReturns)
	}
}
