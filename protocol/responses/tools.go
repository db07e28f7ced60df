package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// tool is what a function of the model is to the harness.
type tool struct {
	kind toolKind
	// namespace and name are what the harness calls it; the default namespace
	// is "".
	namespace, name string
}

type toolKind int

const (
	functionTool toolKind = iota
	// customTool takes text and not JSON; to the model it is a function with
	// the text as its one argument.
	customTool
	// builtinTool is one that OpenAI defines and the harness runs.
	builtinTool
)

// defaultNamespace is where tools are that have no namespace.
const defaultNamespace = "functions"

// functionName is the name under which the model knows a tool. It depends on
// nothing else, so that a call in the history is written as it was sampled even
// where the tools are not given again.
func functionName(namespace, name string) string {
	switch {
	case namespace == "" || namespace == defaultNamespace:
		return name
	case strings.HasSuffix(namespace, "__"):
		return namespace + name
	}
	return namespace + "__" + name
}

// toolset collects the tools of a request.
type toolset struct {
	tools []entry
	place map[string]int
	// ignored are the types of tools that nobody here can run.
	ignored []string
}

// entry is a tool under the name that the model knows it by, and as Chat
// Completions has it.
type entry struct {
	tool
	function string
	chat     json.RawMessage
}

// maxIgnored bounds how many types of tools are named that cannot be run.
const maxIgnored = 32

// offer is a tool as the harness wrote it.
type offer struct {
	typ, name, description string
	rawDescription         json.RawMessage
	parameters, strict     json.RawMessage
	format, tools          json.RawMessage
	execution, environment json.RawMessage
}

func parseOffer(at string, data []byte) (offer, error) {
	var o offer
	if data[0] != '{' {
		return o, &llm.FieldError{Field: at, Err: fmt.Errorf("an object expected, got %s", rawjson.Kind(data))}
	}
	err := rawjson.EachMember(data, func(key string, value []byte) (err error) {
		if rawjson.IsNull(value) {
			return nil
		}
		switch key {
		case "type":
			o.typ, err = rawjson.String(value)
		case "name":
			o.name, err = rawjson.String(value)
		case "description":
			o.rawDescription = value
			o.description, err = rawjson.String(value)
		case "parameters":
			o.parameters = value
		case "strict":
			o.strict = value
		case "format":
			o.format = value
		case "tools":
			o.tools = value
		case "execution":
			o.execution = value
		case "environment":
			o.environment = value
		}
		return openai.InField(at+"."+key, err)
	})
	if err == nil && o.typ == "" {
		err = &llm.FieldError{Field: at + ".type", Err: errMissing}
	}
	return o, err
}

// addAll takes a list of tools in. about, if any, is said of the first of them.
func (s *toolset) addAll(at, namespace, about string, list []byte) error {
	i := 0
	return openai.InField(at, rawjson.EachElement(list, func(value []byte) error {
		here := fmt.Sprintf("%s[%d]", at, i)
		i++
		o, err := parseOffer(here, value)
		if err != nil {
			return err
		}
		if about != "" && o.name != "" {
			o.description = strings.TrimRight("["+namespace+": "+about+"] "+o.description, " ")
			o.rawDescription = rawjson.Quote(o.description)
			about = ""
		}
		return s.add(here, namespace, o)
	}))
}

func (s *toolset) add(at, namespace string, o offer) error {
	t := tool{namespace: namespace, name: o.name}
	if namespace == defaultNamespace {
		t.namespace = ""
	}
	function := o
	switch o.typ {
	case "function":
	case "custom":
		t.kind = customTool
		format, err := parseFormat(at, o.format)
		if err != nil {
			return err
		}
		function.rawDescription = rawjson.Quote(format.describe(o.description))
		function.parameters, function.strict = json.RawMessage(freeformParameters), nil
	case "namespace":
		if namespace != "" {
			return &llm.FieldError{Field: at + ".type", Err: fmt.Errorf("a namespace within the namespace %q", namespace)}
		}
		if o.name == "" {
			return &llm.FieldError{Field: at + ".name", Err: errMissing}
		}
		return s.addAll(at+".tools", o.name, o.description, orEmptyList(o.tools))
	default:
		b, ok := builtinOf(o.typ)
		if !ok || !b.runsAtHarness(o) {
			s.ignore(o.typ)
			return nil
		}
		t = tool{kind: builtinTool, name: o.typ}
		if o.rawDescription == nil {
			function.rawDescription = rawjson.Quote(b.description)
		}
		if o.parameters == nil {
			function.parameters = json.RawMessage(b.parameters)
		}
	}
	if t.name == "" {
		return &llm.FieldError{Field: at + ".name", Err: errMissing}
	}
	return s.put(at, t, function)
}

// put adds a tool, or replaces the one that was given before under its name.
func (s *toolset) put(at string, t tool, o offer) error {
	name := functionName(t.namespace, t.name)
	e := entry{tool: t, function: name, chat: appendFunction(nil, name, o)}
	i, taken := s.place[name]
	if !taken {
		if s.place == nil {
			s.place = map[string]int{}
		}
		s.place[name] = len(s.tools)
		s.tools = append(s.tools, e)
		return nil
	}
	if other := s.tools[i]; other.name != t.name || other.namespace != t.namespace {
		return &llm.FieldError{Field: at + ".name", Err: fmt.Errorf("is %q to the model, which another tool is already", name)}
	}
	s.tools[i] = e
	return nil
}

func (s *toolset) ignore(typ string) {
	if len(s.ignored) < maxIgnored && !slices.Contains(s.ignored, typ) {
		s.ignored = append(s.ignored, typ)
	}
}

// keep drops all tools but those named.
func (s *toolset) keep(names map[string]bool) {
	s.tools = slices.DeleteFunc(s.tools, func(e entry) bool { return !names[e.function] })
	s.place = nil // it is of the tools before
}

// chat has the tools as Chat Completions has them.
func (s *toolset) chat() []json.RawMessage {
	var out []json.RawMessage
	for _, e := range s.tools {
		out = append(out, e.chat)
	}
	return out
}

// byFunction finds a tool by the name that the model calls.
func (s *toolset) byFunction() map[string]tool {
	out := make(map[string]tool, len(s.tools))
	for _, e := range s.tools {
		out[e.function] = e.tool
	}
	return out
}

// appendFunction writes a tool as Chat Completions has it. What the harness
// wrote of it stays as it is.
func appendFunction(dst []byte, name string, o offer) []byte {
	dst = append(dst, `{"type":"function","function":{"name":`...)
	dst = rawjson.AppendString(dst, name)
	for _, m := range []rawjson.Member{
		{Key: `,"description":`, Value: o.rawDescription},
		{Key: `,"parameters":`, Value: o.parameters},
		{Key: `,"strict":`, Value: o.strict},
	} {
		if m.Value != nil {
			dst = append(append(dst, m.Key...), m.Value...)
		}
	}
	return append(dst, "}}"...)
}

func orEmptyList(list json.RawMessage) json.RawMessage {
	if list == nil {
		return json.RawMessage("[]")
	}
	return list
}
