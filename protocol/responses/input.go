package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// conversation makes messages of items. The items of one answer (reasoning,
// text, calls) are one message again, as it was sampled.
type conversation struct {
	tools    *toolset
	messages []llm.Message
	// loose are the parts of a user's message that stand in input by themselves.
	loose []part
	// turn is the newest message of the model; it is open until it is joined by
	// nothing more.
	turn *turn
}

// turn is a message of the model that is still being put together.
type turn struct {
	at     int    // in messages
	answer string // the answer that its items were part of, if they say
	texts  []json.RawMessage
	why    []string
}

func (c *conversation) instruct(value json.RawMessage) error {
	content, err := parseContent("instructions", value)
	if err != nil {
		return err
	}
	if string(content) != `""` {
		c.messages = append(c.messages, llm.Message{Role: "system", Content: content})
	}
	return nil
}

// read takes the input in: a user's text, or items.
func (c *conversation) read(input json.RawMessage) error {
	if input == nil {
		return nil
	}
	switch input[0] {
	case '"':
		c.messages = append(c.messages, llm.Message{Role: "user", Content: input})
		return nil
	case '[':
	default:
		return &llm.FieldError{Field: "input", Err: fmt.Errorf("a string or a list of items expected, got %s", rawjson.Kind(input))}
	}
	i := 0
	return rawjson.EachElement(input, func(value []byte) error {
		at := fmt.Sprintf("input[%d]", i)
		i++
		return openai.InField(at, c.item(at, value))
	})
}

// finish closes what is open and returns all messages.
func (c *conversation) finish() []llm.Message {
	c.closeLoose()
	c.closeTurn()
	return c.messages
}

func (c *conversation) item(at string, data []byte) error {
	it, err := parseItem(at, data)
	if err != nil {
		return err
	}
	switch it.typ {
	case "input_text", "input_image", "input_audio", "input_file":
		p, err := parsePart(at, data)
		c.loose = append(c.loose, p)
		return err
	}
	c.closeLoose()
	switch it.typ {
	case "", "message", "agent_message":
		return c.message(at, it)
	case "reasoning":
		text, err := it.reasoning(at)
		t := c.join(it.id)
		t.why = append(t.why, text)
		return err
	case "function_call":
		return c.call(at, it, functionName(it.namespace, it.name), rawText(it.arguments))
	case "custom_tool_call":
		input, err := it.text(at, "input", it.input)
		if err != nil {
			return err
		}
		return c.call(at, it, functionName(it.namespace, it.name), freeformArguments(input))
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "tool_search_output":
		return c.output(at, it)
	case "additional_tools":
		return c.tools.addAll(at+".tools", "", "", orEmptyList(it.tools))
	case "item_reference":
		return &llm.FieldError{Field: at + ".type", Err: errors.New("item_reference: items are not stored here; send the item itself, which clients do with \"store\": false, or go on from previous_response_id")}
	}
	if name, b, ok := builtinOfItem(it.typ); ok {
		args := map[string]json.RawMessage{"action": it.action, "operation": it.operation, "arguments": it.arguments}[b.member]
		if rawjson.IsNull(args) {
			return &llm.FieldError{Field: at + "." + b.member, Err: errMissing}
		}
		return c.call(at, it, name, b.unwrap(args))
	}
	return &llm.FieldError{Field: at + ".type", Err: fmt.Errorf("%q is not known; known are message, reasoning, function_call, custom_tool_call, local_shell_call, shell_call, apply_patch_call and tool_search_call, their outputs, and additional_tools", it.typ)}
}

// message takes in what a user, the harness or the model said.
func (c *conversation) message(at string, it item) error {
	if it.typ == "agent_message" { // what another agent of the harness says
		it.role = "user"
	}
	if it.content == nil {
		it.content = json.RawMessage(`""`)
	}
	switch it.role {
	case "assistant":
		return c.said(at, it)
	case "user", "system", "developer":
		content, err := parseContent(at+".content", it.content)
		if err != nil {
			return err
		}
		c.closeTurn()
		c.messages = append(c.messages, llm.Message{Role: it.role, Content: content})
		return nil
	case "":
		return &llm.FieldError{Field: at + ".role", Err: errMissing}
	}
	return &llm.FieldError{Field: at + ".role", Err: fmt.Errorf("is %q, must be user, assistant, system or developer", it.role)}
}

// said adds text to the model's message.
func (c *conversation) said(at string, it item) error {
	t := c.join(it.id)
	if it.content[0] == '"' {
		t.texts = append(t.texts, it.content)
		return nil
	}
	i := 0
	return openai.InField(at+".content", rawjson.EachElement(it.content, func(value []byte) error {
		here := fmt.Sprintf("%s.content[%d]", at, i)
		i++
		p, err := parsePart(here, value)
		if err == nil && p.text == nil {
			err = &llm.FieldError{Field: here + ".type", Err: errors.New("the model says only text: output_text or refusal expected")}
		}
		t.texts = append(t.texts, p.text)
		return err
	}))
}

// call adds a call of a tool to the model's message.
func (c *conversation) call(at string, it item, name, arguments string) error {
	if name == "" {
		return &llm.FieldError{Field: at + ".name", Err: errMissing}
	}
	id := it.callID
	if id == "" && it.typ != "function_call" && it.typ != "custom_tool_call" {
		id = it.id // what the shell's calls were known by once
	}
	if id == "" {
		return &llm.FieldError{Field: at + ".call_id", Err: errMissing}
	}
	t := c.join(it.id)
	m := &c.messages[t.at]
	m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: id, Name: name, Arguments: arguments})
	return nil
}

// output takes in what a tool returned.
func (c *conversation) output(at string, it item) error {
	id := it.callID
	if id == "" && it.typ == "local_shell_call_output" {
		id = it.id
	}
	if id == "" {
		return &llm.FieldError{Field: at + ".call_id", Err: errMissing}
	}
	m := llm.Message{Role: "tool", ToolCallID: id}
	var err error
	switch it.typ {
	case "tool_search_output":
		m.Content = rawjson.Quote(string(orEmptyList(it.tools)))
		err = c.tools.addAll(at+".tools", "", "", orEmptyList(it.tools))
	case "shell_call_output":
		m.Content = rawjson.Quote(rawText(it.output))
	case "apply_patch_call_output":
		if it.output == nil {
			it.output = it.state // all that it says
		}
		fallthrough
	default:
		if it.output == nil {
			return &llm.FieldError{Field: at + ".output", Err: errMissing}
		}
		m.Content, err = parseContent(at+".output", it.output)
	}
	c.messages = append(c.messages, m)
	return err
}

// join is the message that an item of the model belongs to: the one before it,
// unless the two say that they were parts of different answers. A harness may
// put the results of calls between the items of an answer.
func (c *conversation) join(id string) *turn {
	answer := answerOf(id)
	if t := c.turn; t != nil {
		next := t.at == len(c.messages)-1
		if answer != "" && answer == t.answer || next && (answer == "" || t.answer == "") {
			if t.answer == "" {
				t.answer = answer
			}
			return t
		}
	}
	c.closeTurn()
	c.turn = &turn{at: len(c.messages), answer: answer}
	c.messages = append(c.messages, llm.Message{Role: "assistant"})
	return c.turn
}

// closeTurn writes what was collected into the message.
func (c *conversation) closeTurn() {
	t := c.turn
	if t == nil {
		return
	}
	c.turn = nil
	m := &c.messages[t.at]
	m.Reasoning = strings.Join(t.why, "")
	m.Content = joinTexts(t.texts)
	switch {
	case len(m.ToolCalls) == 0 && m.Content == nil:
		m.Content = json.RawMessage(`""`)
	case len(m.ToolCalls) > 0 && string(m.Content) == `""`:
		m.Content = nil
	}
}

// joinTexts puts JSON strings together. One alone stays as it was written.
func joinTexts(texts []json.RawMessage) json.RawMessage {
	switch len(texts) {
	case 0:
		return nil
	case 1:
		return texts[0]
	}
	var b strings.Builder
	for _, raw := range texts {
		s, _ := rawjson.String(raw) // it was seen to be one
		b.WriteString(s)
	}
	return rawjson.Quote(b.String())
}

func (c *conversation) closeLoose() {
	if len(c.loose) == 0 {
		return
	}
	content := joinParts(c.loose)
	c.loose = nil
	c.closeTurn()
	c.messages = append(c.messages, llm.Message{Role: "user", Content: content})
}
