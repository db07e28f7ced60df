package anthropic

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// conversation turns the messages of a request into those of Chat, in order.
type conversation struct {
	tools toolbox
	out   []llm.Message
	// prefilled says that the last message is the beginning of the answer.
	prefilled bool
}

func (c *conversation) addAll(list []byte) error {
	if list == nil {
		return errors.New("at least one message expected")
	}
	n := 0
	err := eachObject(list, func(m rawjson.Object) error {
		n++
		return c.add(m)
	})
	if err == nil && n == 0 {
		err = errors.New("at least one message expected")
	}
	return err
}

func (c *conversation) add(m rawjson.Object) error {
	role, err := stringOf(m, "role")
	if err != nil {
		return err
	}
	content := m.Get("content")
	if rawjson.IsNull(content) {
		return wrong("content", "missing")
	}
	c.prefilled = false
	switch role {
	case "user":
		err = c.addUser(content)
	case "assistant":
		err = c.addAssistant(content)
	case "system":
		err = c.addSystem(content)
	case "":
		return wrong("role", "missing")
	default:
		return wrong("role", "is %q, must be user, assistant or system", role)
	}
	return within("content", err)
}

// eachBlock calls f with each block of a message. A string is one block of text.
func eachBlock(content []byte, f func(kind string, block rawjson.Object) error) error {
	switch content[0] {
	case '"':
		return f("text", rawjson.Object{{Key: "text", Value: content}})
	case '[':
		return eachObject(content, func(block rawjson.Object) error {
			kind, err := stringOf(block, "type")
			if err != nil {
				return err
			}
			return f(kind, block)
		})
	}
	return fmt.Errorf("a string or a list of blocks expected, got %s", rawjson.Kind(content))
}

// addUser adds what the user says. Results of tools are messages of their own,
// and what stands between and after them stays there.
func (c *conversation) addUser(content []byte) error {
	before := len(c.out)
	var p parts
	say := func() {
		if p.n > 0 {
			c.out = append(c.out, llm.Message{Role: "user", Content: p.content()})
			p = parts{}
		}
	}
	err := eachBlock(content, func(kind string, block rawjson.Object) error {
		if kind != "tool_result" {
			return p.add(kind, block)
		}
		say()
		m, err := c.toolResult(block)
		c.out = append(c.out, m)
		return err
	})
	say()
	if err == nil && len(c.out) == before {
		c.out = append(c.out, llm.Message{Role: "user", Content: p.content()})
	}
	return err
}

// toolErrorMark stands before the result of a tool that is an error: Chat has
// no other way to say so.
const toolErrorMark = "[Tool Error]"

func (c *conversation) toolResult(block rawjson.Object) (m llm.Message, err error) {
	m.Role = "tool"
	if m.ToolCallID, err = stringOf(block, "tool_use_id"); err != nil {
		return m, err
	}
	if m.ToolCallID == "" {
		return m, wrong("tool_use_id", "missing")
	}
	failed, err := boolOf(block, "is_error")
	if err != nil {
		return m, err
	}
	var p parts
	if content := block.Get("content"); !rawjson.IsNull(content) {
		var references []string
		load := func() {
			if references != nil {
				p.addText(rawjson.Quote(c.tools.loaded(references)))
				references = nil
			}
		}
		err = eachBlock(content, func(kind string, block rawjson.Object) error {
			if kind == "tool_reference" {
				name, err := stringOf(block, "tool_name")
				references = append(references, name)
				return err
			}
			load()
			return p.add(kind, block)
		})
		load()
	}
	if failed {
		p.mark(toolErrorMark)
	}
	m.Content = p.content()
	return m, within("content", err)
}

// addAssistant adds what the model said. Its texts are put together, and so is
// its thinking: that is how they came from the engine.
func (c *conversation) addAssistant(content []byte) error {
	m := llm.Message{Role: "assistant"}
	var text json.RawMessage
	err := eachBlock(content, func(kind string, block rawjson.Object) (err error) {
		switch kind {
		case "text":
			var more []byte
			if more, err = quotedOf(block, "text"); err == nil {
				text = joinQuoted(text, more)
			}
		case "thinking":
			var thought string
			thought, err = thinking(block)
			m.Reasoning += thought
		case "redacted_thinking":
		case "tool_use":
			var call llm.ToolCall
			call, err = toolCall(block)
			m.ToolCalls = append(m.ToolCalls, call)
		default:
			err = unknownBlock(kind)
		}
		return err
	})
	if len(text) > len(`""`) || len(m.ToolCalls) == 0 {
		m.Content = joinQuoted(text, []byte(`""`))
	}
	c.prefilled = len(m.ToolCalls) == 0 && len(m.Content) > len(`""`)
	c.out = append(c.out, m)
	return err
}

// joinQuoted puts two JSON strings together, in bytes of its own.
func joinQuoted(a json.RawMessage, b []byte) json.RawMessage {
	if a == nil {
		return bytes.Clone(b)
	}
	return append(a[:len(a)-1], b[1:]...)
}

// addSystem adds what the system says, at whatever place.
func (c *conversation) addSystem(content []byte) error {
	var p parts
	err := eachBlock(content, func(kind string, block rawjson.Object) error {
		if kind == "text" {
			if text := block.Get("text"); bytes.HasPrefix(text, []byte(billingLine)) {
				if text = withoutBilling(text); text == nil {
					return nil
				}
				block = rawjson.Object{{Key: "text", Value: text}}
			}
		}
		return p.add(kind, block)
	})
	if p.n > 0 {
		c.out = append(c.out, llm.Message{Role: "system", Content: p.content()})
	}
	return err
}

// billingLine begins a line that Claude Code puts before its system prompt. It
// differs between requests of one conversation.
const billingLine = `"x-anthropic-billing-header:`

// withoutBilling is a quoted text without its first line, nil if it has no other.
func withoutBilling(quoted []byte) []byte {
	text, err := rawjson.String(quoted)
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(text, "\n")
	if strings.TrimSpace(rest) == "" {
		return nil
	}
	return rawjson.Quote(rest)
}

// signaturePrefix begins the signature of thinking that passed through here.
const signaturePrefix = "polar:"

// sign makes the signature of a thinking block, which carries its text.
func sign(text string) string {
	return signaturePrefix + base64.RawStdEncoding.EncodeToString([]byte(text))
}

// thinking is the text of a thinking block: the one that was signed here, or
// else the one that stands there.
func thinking(block rawjson.Object) (string, error) {
	signature, err := stringOf(block, "signature")
	if err != nil {
		return "", err
	}
	if ours, ok := strings.CutPrefix(signature, signaturePrefix); ok {
		if text, err := base64.RawStdEncoding.DecodeString(ours); err == nil {
			return string(text), nil
		}
	}
	return stringOf(block, "thinking")
}

func unknownBlock(kind string) error {
	if kind == "" {
		return wrong("type", "missing")
	}
	return wrong("type", "a block of type %q is not known here", kind)
}
