package sim_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/sim"
)

func TestAFileIsReadOverTheDefaults(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	const text = `
seed: 7
success_rate: 0.25
ttft: 20ms
rules:
  - when: {user: 'add (?P<a>\d+)', tool_results: 0}
    think: [one, two]
    shell: echo {{.a}}
faults:
  - {kind: status, status: 429, retry_after: "1", calls: [1]}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := sim.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Seed != 7 || c.SuccessRate != 0.25 || c.TTFT != 20*time.Millisecond || c.ChunkTokens != sim.Defaults().ChunkTokens {
		t.Errorf("settings read as %+v", c)
	}
	if len(c.Rules) != 1 || len(c.Rules[0].Think) != 2 || len(c.Rules[0].Shell) != 1 || len(c.Faults) != 1 {
		t.Errorf("rules read as %+v, faults as %+v", c.Rules, c.Faults)
	}
}

func TestAnEmptyFileIsTheDefaults(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "\n", "# nothing\n", "---\n"} {
		c, err := sim.Parse([]byte(file))
		if diff := cmp.Diff(sim.Defaults(), c); err != nil || diff != "" {
			t.Errorf("%q: %v %s", file, err, diff)
		}
	}
}

func TestAMistakeInAFileIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	rule := func(lines ...string) string {
		return "rules:\n  - say: fine\n  - " + strings.Join(lines, "\n    ") + "\n"
	}
	for name, c := range map[string]struct{ file, want string }{
		"an unknown setting":              {"speed: 3\n", `unknown field "speed"`},
		"an unknown field of a rule":      {rule("say: hi", "sya: hi"), `rules[1]: [4:5] unknown field "sya"`},
		"an unknown condition":            {rule("when: {usr: x}", "say: hi"), `rules[1]: [3:12] unknown field "usr"`},
		"a condition of the wrong type":   {rule("when: {tool_results: many}", "say: hi"), `rules[1]: [3:`},
		"a text of the wrong type":        {rule("say: {a: b}"), `rules[1]: [3:`},
		"a broken pattern":                {rule("when: {user: '('}", "say: hi"), "rules[1].when.user: error parsing regexp"},
		"a broken template":               {rule("say: 'a {{.b'"), "rules[1].say: "},
		"a group that no pattern has":     {rule("when: {user: '(?P<a>x)'}", "say: ['{{.a}}', '{{.b}}']"), "rules[1].say[1]: "},
		"nothing to do":                   {rule("think: hm"), "rules[1].say: missing"},
		"a chance that is no probability": {rule("chance: 1.5", "then: {say: a}"), "rules[1].chance: is 1.5"},
		"a chance in words":               {rule("chance: often", "then: {say: a}"), `rules[1].chance: is "often"`},
		"then without chance":             {rule("say: a", "then: {say: a}"), "rules[1].chance: missing"},
		"chance without then":             {rule("chance: 0.5", "else: {say: a}"), "rules[1].then: missing"},
		"chance beside an action":         {rule("chance: 0.5", "say: x", "then: {say: a}"), "rules[1].chance: what is done"},
		"a mistake deep inside":           {rule("chance: 0.5", "then: {chance: 0.5, then: {say: a}, else: {say: '{{.x}}'}}", "else: {say: b}"), "rules[1].then.else.say: "},
		"a shell where there is none":     {rule("when: {has_shell: false}", "shell: ls"), "rules[1].shell: "},
		"a call of no tool":               {rule("call: [{arguments: '{}'}]"), "rules[1].call[0].tool: missing"},
		"a fault of no kind":              {"faults: [{kind: flood, every: 1}]\n", `faults[0].kind: "flood" is not known`},
		"a fault for no call":             {"faults: [{kind: drop}]\n", "faults[0].every: give one of every"},
		"a rule's fault for a call":       {"rules: [{say: x, fault: {kind: drop, every: 2}}]\n", "rules[0].fault.every, probability, calls: the rule says"},
		"a rule's usage below 0":          {"rules: [{say: x, usage: {prompt_tokens: -1}}]\n", "rules[0].usage.prompt_tokens: must not"},
		"a fault beside a chance":         {"rules: [{chance: 1, then: {say: x}, fault: {kind: drop}}]\n", "rules[0].chance: what is done stands below"},
		"a fault for two sorts of calls":  {"faults: [{kind: drop, every: 1, calls: [1]}]\n", "faults[0].every: give one of every"},
		"a fault's stray field":           {"faults: [{kind: drop, every: 1, after_tokens: 3}]\n", "faults[0].after_tokens: has no meaning"},
		"a status that is no error":       {"faults: [{kind: status, status: 200, every: 1}]\n", "faults[0].status: is 200"},
		"an unknown field of a fault":     {"faults: [{kind: drop, evry: 1}]\n", `faults[0]: [1:23] unknown field "evry"`},
		"a rate above 1":                  {"success_rate: 70\n", "success_rate: is 70"},
		"a negative speed":                {"tokens_per_second: -1\n", "tokens_per_second: "},
		"no chunk":                        {"chunk_tokens: 0\n", "chunk_tokens: "},
		"no YAML":                         {"rules: [", "sequence"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sim.Parse([]byte(c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with %q", err, c.want)
			}
		})
	}
}

func TestAMissingFileIsNamed(t *testing.T) {
	t.Parallel()
	if _, err := sim.LoadFile("nowhere.yaml"); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") {
		t.Errorf("got error %v", err)
	}
}
