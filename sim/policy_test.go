package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/sim"
)

// tool is a Chat tool whose parameters have this schema.
func tool(name, schema string) string {
	return fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":%s}}`, name, schema)
}

// turn asks a server of the given rules with tools, comma separated.
func turn(t *testing.T, yaml, messages, tools, more string) answered {
	t.Helper()
	if tools != "" {
		more += `,"tools":[` + tools + `]`
	}
	return chat(t, start(t, parse(t, yaml)), `{"messages":[`+messages+`],"return_token_ids":true`+more+`}`)
}

func TestAnyShellToolIsCalledAsItWants(t *testing.T) {
	t.Parallel()
	const str = `{"type":"string"}`
	object := func(properties, required string) string {
		return `{"type":"object","properties":{` + properties + `},"required":[` + required + `]}`
	}
	edit := tool("edit", object(`"path":`+str, `"path"`))
	task := tool("task", object(`"prompt":`+str+`,"command":`+str, `"prompt"`))
	for name, c := range map[string]struct{ tools, want string }{
		"bash":                  {tool("bash", object(`"command":`+str, `"command"`)), `bash {"command": "ls 'x'"}`},
		"Bash among others":     {edit + "," + task + "," + tool("Bash", object(`"command":`+str+`,"timeout":{"type":"number"}`, `"command"`)), `Bash {"command": "ls 'x'"}`},
		"exec_command with cmd": {task + "," + tool("exec_command", object(`"cmd":`+str+`,"tty":{"type":"boolean"}`, `"cmd"`)), `exec_command {"cmd": "ls 'x'"}`},
		"shell with a list":     {tool("shell", object(`"command":{"type":"array","items":`+str+`}`, `"command"`)), `shell {"command": ["bash", "-lc", "ls 'x'"]}`},
		"a name of its own":     {edit + "," + tool("do_it", object(`"script":`+str, `"script"`)), `do_it {"script": "ls 'x'"}`},
		"types in capitals":     {tool("run_shell_command", object(`"command":{"type":"STRING"}`, `"command"`)), `run_shell_command {"command": "ls 'x'"}`},
		"the best name wins":    {tool("exec", object(`"command":`+str, `"command"`)) + "," + tool("bash", object(`"command":`+str, `"command"`)), `bash {"command": "ls 'x'"}`},
		"what else it cannot be without": {
			tool("bash", object(`"command":`+str+`,"why":`+str+`,"bg":{"type":"boolean"},"n":{"type":"integer","minimum":5},"how":{"enum":["a","b"]},"x":{"type":"object"},"d":{"type":"number","default":1.50}`,
				`"command","why","bg","n","how","x","d"`)),
			`bash {"command": "ls 'x'", "why": "Work on the task", "bg": false, "n": 5, "how": "a", "x": {}, "d": 1.50}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := turn(t, `rules: [{when: {user: '(?P<f>x)'}, shell: "ls {{sh .f}}"}]`, `{"role":"user","content":"x"}`, c.tools, "")
			if diff := cmp.Diff([]string{c.want}, a.Calls); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, tools := range map[string]string{"no tools": "", "no shell": edit, "a command that is optional": task, "a tool without a schema": tool("bash", "null")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := turn(t, "rules: [{shell: ls}, {say: none}]", `{"role":"user","content":"x"}`, tools, "")
			if a.Text != "none" || a.Calls != nil {
				t.Errorf("answered %q, called %q", a.Text, a.Calls)
			}
		})
	}
}

func TestTheFirstRuleThatHoldsAnswers(t *testing.T) {
	t.Parallel()
	const rules = `
rules:
  - {when: {system: 'pirate (?P<name>\w+)'}, say: 'Arr, {{.name}}'}
  - {when: {has_tool: '^web_'}, say: I can search.}
  - {when: {user: '^add (?P<a>\d+) and (?P<b>\d+)$', tool_results: 0}, call: [{tool: calc, arguments: '{"sum": [{{.a}}, {{.b}}], "of": {{json .user}}}'}]}
  - {when: {tool_results: 1, tool_result: '(?P<n>\d+)$'}, say: 'It is {{.n}}.'}
  - {when: {min_tool_results: 2}, say: 'Last: {{trim .tool_result | lower}}'}
  - {when: {has_shell: false, user: shell}, say: No shell.}
  - {when: {user: long}, filler_tokens: 5}
  - {say: Nothing.}
`
	const add = `{"role":"user","content":"add 2 and 3"}`
	call := `,{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"calc","arguments":"{}"}}]}`
	result := func(s string) string { return `,{"role":"tool","tool_call_id":"a","content":"` + s + `"}` }
	for name, c := range map[string]struct{ messages, tools, want string }{
		"the system's text":                   {`{"role":"system","content":"You are pirate Ann"},` + add, "", "Arr, Ann"},
		"a tool's name":                       {add, tool("web_search", "{}"), "I can search."},
		"no tool result yet":                  {add, "", `calc {"sum": [2, 3], "of": "add 2 and 3"}`},
		"a tool result":                       {add + call + result("sum: 5"), "", "It is 5."},
		"a tool result that does not match":   {add + call + result("?"), "", "Nothing."},
		"two tool results":                    {add + call + result("A") + result(" B "), "", "Last: b"},
		"the user spoke since":                {add + call + result("5") + `,{"role":"user","content":"hm"}`, "", "Nothing."},
		"the system's second text":            {`{"role":"system","content":"You are"},{"role":"developer","content":"pirate Bob"},` + add, "", "Arr, Bob"},
		"a system text after the user's":      {add + `,{"role":"system","content":"pirate Ann"}`, "", `calc {"sum": [2, 3], "of": "add 2 and 3"}`},
		"a reminder is not the user speaking": {add + call + result("5") + `,{"role":"user","content":"<system-reminder>\nhm</system-reminder>"}`, "", "It is 5."},
		"no shell":                            {`{"role":"user","content":"shell"}`, "", "No shell."},
		"nothing holds":                       {`{"role":"user","content":"shell"}`, bashTool, "Nothing."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := turn(t, rules, c.messages, c.tools, "")
			if got := strings.Join(append([]string{a.Text}, a.Calls...), ""); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if a := turn(t, rules, `{"role":"user","content":"long"}`, "", ""); len(a.Tokens) != 6 {
		t.Errorf("5 tokens of filler are %d with the end of the turn", len(a.Tokens))
	}
}

func TestChancesComeAsOftenAsTheyShould(t *testing.T) {
	t.Parallel()
	s := start(t, parse(t, `
success_rate: 0.9
rules:
  - {chance: 0.5, then: {chance: success_rate, then: {say: a}, else: {say: b}}}
  - {say: c}
`))
	counts := map[string]int{}
	for range 1000 {
		counts[chat(t, s, `{"messages":[{"role":"user","content":"x"}]}`).Text]++
	}
	if a, b, c := counts["a"], counts["b"], counts["c"]; a < 380 || a > 520 || b < 20 || b > 90 || c < 430 || c > 570 || a+b+c != 1000 {
		t.Errorf("got %v, want about 450, 50 and 500", counts)
	}
}

func TestToolChoiceIsKeptTo(t *testing.T) {
	t.Parallel()
	const user = `{"role":"user","content":"x"}`
	if a := turn(t, "rules: [{shell: [ls, pwd]}]", user, bashTool, `,"parallel_tool_calls":false`); len(a.Calls) != 1 {
		t.Errorf("called %q", a.Calls)
	}
	none := turn(t, "rules: [{shell: ls}, {say: no}]", user, bashTool, `,"tool_choice":"none"`)
	if none.Text != "no" || none.Calls != nil || !strings.Contains(string(sim.Decode(none.Prompt)), `"bash"`) {
		t.Errorf("answered %q, called %q", none.Text, none.Calls)
	}
}

func TestTheBuiltInPolicyAnswersAnything(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Defaults())
	for name, c := range map[string]struct{ messages, tools, want string }{
		"chit-chat":           {`{"role":"user","content":"Good morning"}`, bashTool, "simulated model"},
		"a title":             {`{"role":"system","content":"You are a title generator."},{"role":"user","content":"Create hello.txt containing hello"}`, "", "A small task"},
		"a summary":           {`{"role":"system","content":"You are a context summarization assistant."},{"role":"user","content":"Create x"}`, "", "## Goal"},
		"a compaction":        {`{"role":"user","content":"You are performing a CONTEXT CHECKPOINT COMPACTION."}`, bashTool, "## Goal"},
		"no tools":            {`{"role":"user","content":"Fix the bug in x.py"}`, "", "no tools"},
		"an unknown task":     {`{"role":"user","content":"Fix the bug in x.py"}`, bashTool, `bash {"command": "ls -A"}`},
		"a command":           {"{\"role\":\"user\",\"content\":\"Please run `make test` now\"}", bashTool, `bash {"command": "make test"}`},
		"a harness's wording": {`{"role":"user","content":"Create hello.txt containing hello"},{"role":"tool","content":""}`, bashTool, `printf '%s\\n' 'hello' > 'hello.txt'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := `{"messages":[` + c.messages + `]`
			if c.tools != "" {
				body += `,"tools":[` + c.tools + `]`
			}
			a := chat(t, s, body+`}`)
			if got := strings.Join(append([]string{a.Text}, a.Calls...), ""); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if w := ask(t, s, chatPath, `{"messages":[{"role":"user","content":"`+strings.Repeat("count ", 20_000)+`"}]}`); w.Code != http.StatusOK {
		t.Errorf("a long text: %d %s", w.Code, w.Body)
	}
}
