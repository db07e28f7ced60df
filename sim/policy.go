package sim

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	texttemplate "text/template"
)

// Rule says what the simulated model does in one kind of situation. Rules are
// tried in order; the first whose conditions all hold answers.
type Rule struct {
	When   When `yaml:"when"`
	Action `yaml:",inline"`
}

// When holds the conditions of a rule; what is left out always holds. Patterns
// are regular expressions that need to match somewhere, and look at no more
// than the first 32 KiB. Their named groups can be used in the rule's texts.
type When struct {
	// User is about the text of the last user message.
	User string `yaml:"user"`
	// System is about the system and developer messages that come before the
	// first of a user.
	System string `yaml:"system"`
	// ToolResult is about the last tool result since the last user message.
	ToolResult string `yaml:"tool_result"`
	// ToolResults is how many tool results came since the last user message,
	// MinToolResults how many at least.
	ToolResults    *int `yaml:"tool_results"`
	MinToolResults int  `yaml:"min_tool_results"`
	// HasTool is about the names of the tools on offer: one must match.
	HasTool string `yaml:"has_tool"`
	// HasShell asks for a tool that runs commands, or for there to be none.
	HasShell *bool `yaml:"has_shell"`
}

// Action is one turn of the simulated model. Its texts are Go templates: the
// named groups of the rule's patterns, .user and .tool_result are the data, and
// sh, json, lower, trim and dir are functions.
type Action struct {
	// Think and Say are reasoning and text; of several one is drawn.
	Think Texts `yaml:"think"`
	Say   Texts `yaml:"say"`
	// Shell are commands to run, each a call of whichever tool on offer runs
	// commands. A rule with a Shell holds only where there is such a tool.
	Shell Texts `yaml:"shell"`
	// Call are calls of tools by name.
	Call []Call `yaml:"call"`
	// FillerTokens adds this many tokens of filler to the text.
	FillerTokens int `yaml:"filler_tokens"`
	// Usage is what is reported in place of what was counted.
	Usage ReportedUsage `yaml:"usage"`
	// Fault is what goes wrong with the turn, as often as its Times says.
	Fault *Fault `yaml:"fault"`
	// Chance is the probability of Then; otherwise it is Else, and without an
	// Else the next rule is tried.
	Chance *Chance `yaml:"chance"`
	Then   *Action `yaml:"then"`
	Else   *Action `yaml:"else"`
}

// ReportedUsage is a usage that is not what was counted. Of the answer's tokens
// there is none: they are the ids that are sent.
type ReportedUsage struct {
	// PromptTokens is reported for the prompt; 0 leaves what was counted.
	PromptTokens int `yaml:"prompt_tokens"`
}

// Call is a tool call. Arguments is the JSON as the model writes it, which may
// be broken on purpose.
type Call struct {
	Tool      string `yaml:"tool"`
	Arguments string `yaml:"arguments"`
}

// Texts is one text or several; in YAML a string or a list of strings.
type Texts []string

// UnmarshalYAML reads a string or a list of strings.
func (t *Texts) UnmarshalYAML(unmarshal func(any) error) error {
	var list []string
	if err := unmarshal(&list); err == nil {
		*t = list
		return nil
	}
	*t = Texts{""}
	return unmarshal(&(*t)[0])
}

// Chance is a probability; in YAML a number, or a word for a setting of the
// server: success_rate.
type Chance struct {
	Probability float64
	Word        string
}

// UnmarshalYAML reads a number or a word.
func (c *Chance) UnmarshalYAML(unmarshal func(any) error) error {
	if err := unmarshal(&c.Probability); err == nil {
		return nil
	}
	return unmarshal(&c.Word)
}

// policy is rules made ready to use. It is not changed once made.
type policy struct{ rules []rule }

type rule struct {
	user, system, toolResult, hasTool *regexp.Regexp
	toolResults                       *int
	minToolResults                    int
	hasShell                          *bool
	action                            *action
}

type action struct {
	think, say, shell []text
	calls             []callText
	filler            int
	usage             ReportedUsage
	fault             *Fault
	chance            float64
	bySuccessRate     bool // the chance is the server's success rate
	then, otherwise   *action
}

type callText struct {
	tool      string
	arguments text
}

// text is a template; one without a placeholder is kept as it is.
type text struct {
	plain string
	tmpl  *texttemplate.Template
}

func (t text) expand(data map[string]string) string {
	if t.tmpl == nil {
		return t.plain
	}
	var b strings.Builder
	if err := t.tmpl.Execute(&b, data); err != nil {
		return err.Error() // cannot be: compile tried it with the same names
	}
	return b.String()
}

func compilePolicy(rules []Rule) (policy, error) {
	p := policy{rules: make([]rule, len(rules))}
	for i, r := range rules {
		c := compiler{data: map[string]string{"user": "x", "tool_result": "x"}}
		if err := c.rule(r, &p.rules[i]); err != nil {
			return policy{}, fmt.Errorf("rules[%d].%w", i, err)
		}
	}
	return p, nil
}

// compiler makes one rule ready. Its data has every name that the rule's texts
// may use.
type compiler struct{ data map[string]string }

func (c *compiler) rule(r Rule, out *rule) error {
	w := r.When
	for _, p := range []struct {
		field, pattern string
		into           **regexp.Regexp
	}{
		{"user", w.User, &out.user},
		{"system", w.System, &out.system},
		{"tool_result", w.ToolResult, &out.toolResult},
		{"has_tool", w.HasTool, &out.hasTool},
	} {
		if p.pattern == "" {
			continue
		}
		re, err := regexp.Compile(p.pattern)
		if err != nil {
			return fmt.Errorf("when.%s: %w", p.field, err)
		}
		*p.into = re
		for _, name := range re.SubexpNames() {
			if name != "" && p.field != "has_tool" {
				c.data[name] = "x"
			}
		}
	}
	if w.ToolResults != nil && *w.ToolResults < 0 || w.MinToolResults < 0 {
		return fmt.Errorf("when.tool_results: must not be below 0")
	}
	out.toolResults, out.minToolResults, out.hasShell = w.ToolResults, w.MinToolResults, w.HasShell
	act, err := c.action("", r.Action)
	if err != nil {
		return err
	}
	out.action = act
	if act.needsShell() {
		if w.HasShell != nil && !*w.HasShell {
			return fmt.Errorf("shell: cannot be run where has_shell is false")
		}
		yes := true
		out.hasShell = &yes
	}
	return nil
}

func (c *compiler) action(path string, a Action) (*action, error) {
	var out action
	var err error
	if out.think, err = c.texts(path+"think", a.Think); err != nil {
		return nil, err
	}
	if out.say, err = c.texts(path+"say", a.Say); err != nil {
		return nil, err
	}
	if out.shell, err = c.texts(path+"shell", a.Shell); err != nil {
		return nil, err
	}
	for i, call := range a.Call {
		field := fmt.Sprintf("%scall[%d]", path, i)
		if call.Tool == "" {
			return nil, fmt.Errorf("%s.tool: missing", field)
		}
		arguments, err := c.text(field+".arguments", call.Arguments)
		if err != nil {
			return nil, err
		}
		out.calls = append(out.calls, callText{call.Tool, arguments})
	}
	if out.filler = a.FillerTokens; out.filler < 0 {
		return nil, fmt.Errorf("%sfiller_tokens: must not be below 0", path)
	}
	if out.usage = a.Usage; out.usage.PromptTokens < 0 {
		return nil, fmt.Errorf("%susage.prompt_tokens: must not be below 0", path)
	}
	if out.fault = a.Fault; out.fault != nil {
		if err := out.fault.validate(true); err != nil {
			return nil, fmt.Errorf("%sfault.%w", path, err)
		}
	}
	acts := len(a.Say)+len(a.Shell)+len(a.Call)+a.FillerTokens > 0
	if a.Chance == nil {
		switch {
		case a.Then != nil || a.Else != nil:
			return nil, fmt.Errorf("%schance: missing beside then or else", path)
		case !acts:
			return nil, fmt.Errorf("%ssay: missing, and so are shell, call, filler_tokens and chance: nothing to do", path)
		}
		return &out, nil
	}
	out.chance, out.bySuccessRate = a.Chance.Probability, a.Chance.Word == "success_rate"
	switch {
	case a.Chance.Word != "" && !out.bySuccessRate:
		return nil, fmt.Errorf("%schance: is %q, must be a number from 0 to 1 or success_rate", path, a.Chance.Word)
	case out.chance < 0 || out.chance > 1:
		return nil, fmt.Errorf("%schance: is %v, must be from 0 to 1", path, out.chance)
	case acts || len(a.Think) > 0 || a.Fault != nil || a.Usage != (ReportedUsage{}):
		return nil, fmt.Errorf("%schance: what is done stands below then and else, not beside it", path)
	case a.Then == nil:
		return nil, fmt.Errorf("%sthen: missing beside chance", path)
	case a.Else == nil && path != "":
		return nil, fmt.Errorf("%selse: missing; only a rule's own chance can pass on to the next rule", path)
	}
	if out.then, err = c.action(path+"then.", *a.Then); err != nil {
		return nil, err
	}
	if a.Else != nil {
		out.otherwise, err = c.action(path+"else.", *a.Else)
	}
	return &out, err
}

func (c *compiler) texts(field string, list []string) ([]text, error) {
	var out []text
	for i, s := range list {
		name := field
		if len(list) > 1 {
			name = fmt.Sprintf("%s[%d]", field, i)
		}
		t, err := c.text(name, s)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (c *compiler) text(field, s string) (text, error) {
	if !strings.Contains(s, "{{") {
		return text{plain: s}, nil
	}
	tmpl, err := texttemplate.New(field).Option("missingkey=error").Funcs(texttemplate.FuncMap{
		"sh":    shellQuote,
		"json":  func(s string) string { b, _ := json.Marshal(s); return string(b) },
		"lower": strings.ToLower,
		"trim":  strings.TrimSpace,
		"dir":   path.Dir,
	}).Parse(s)
	if err == nil {
		var b strings.Builder
		err = tmpl.Execute(&b, c.data)
	}
	if err != nil {
		return text{}, fmt.Errorf("%s: %w", field, err)
	}
	return text{tmpl: tmpl}, nil
}

func (a *action) needsShell() bool {
	return a != nil && (len(a.shell) > 0 || a.then.needsShell() || a.otherwise.needsShell())
}

// shellQuote makes s one word of a shell command.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
