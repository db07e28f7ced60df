package llm

import (
	"encoding/json"
	"fmt"
	"strings"

	"polar/rawjson"
)

// Text flattens the content of a message to its text.
func (m Message) Text() string {
	if rawjson.IsNull(m.Content) {
		return ""
	}
	if s, err := rawjson.String(m.Content); err == nil {
		return s
	}
	var b strings.Builder
	_ = rawjson.EachElement(m.Content, func(part []byte) error {
		o, err := rawjson.ParseObject(part)
		if err != nil {
			return err
		}
		if s, err := rawjson.String(o.Get("text")); err == nil {
			b.WriteString(s)
		}
		return nil
	})
	return b.String()
}

// WithRole is the message in the mouth of another.
func (m Message) WithRole(role string) Message {
	m.Role, m.raw = role, nil
	return m
}

// JSON is the message as Chat Completions has it, with the reasoning under the
// name given, since engines differ in it. A message that ParseMessage read is
// what was written then, and aliases it, whatever was done to the fields since:
// change it with WithRole, or make a new one.
func (m Message) JSON(reasoningKey string) json.RawMessage {
	if m.raw != nil && (m.rawReasoning == "" || m.rawReasoning == reasoningKey) {
		return m.raw
	}
	return m.appendJSON(nil, reasoningKey)
}

// AppendJSON writes what JSON returns.
func (m Message) AppendJSON(dst []byte, reasoningKey string) []byte {
	return append(dst, m.JSON(reasoningKey)...)
}

// Pieces is what JSON returns in three pieces, of which the content is not
// copied: it may hold megabytes of images.
func (m Message) Pieces(reasoningKey string) (before, content, after []byte) {
	if m.raw != nil && (m.rawReasoning == "" || m.rawReasoning == reasoningKey) {
		return nil, m.raw, nil
	}
	return m.appendBeforeContent(nil), m.Content, m.appendAfterContent(nil, reasoningKey)
}

func (m Message) appendJSON(dst []byte, reasoningKey string) []byte {
	dst = append(m.appendBeforeContent(dst), m.Content...)
	return m.appendAfterContent(dst, reasoningKey)
}

func (m Message) appendBeforeContent(dst []byte) []byte {
	dst = append(dst, `{"role":`...)
	dst = rawjson.AppendString(dst, m.Role)
	switch {
	case m.Content != nil:
		dst = append(dst, `,"content":`...)
	case len(m.ToolCalls) > 0:
		dst = append(dst, `,"content":null`...)
	}
	return dst
}

func (m Message) appendAfterContent(dst []byte, reasoningKey string) []byte {
	if m.Reasoning != "" {
		dst = append(dst, ',')
		dst = rawjson.AppendString(dst, reasoningKey)
		dst = append(dst, ':')
		dst = rawjson.AppendString(dst, m.Reasoning)
	}
	if m.Name != "" {
		dst = append(dst, `,"name":`...)
		dst = rawjson.AppendString(dst, m.Name)
	}
	if m.ToolCallID != "" {
		dst = append(dst, `,"tool_call_id":`...)
		dst = rawjson.AppendString(dst, m.ToolCallID)
	}
	if len(m.ToolCalls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for i, c := range m.ToolCalls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = c.appendJSON(dst)
		}
		dst = append(dst, ']')
	}
	return append(appendMembers(dst, m.Extra), '}')
}

func (c ToolCall) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, c.ID)
	dst = append(dst, `,"type":"function","function":{"name":`...)
	dst = rawjson.AppendString(dst, c.Name)
	dst = append(dst, `,"arguments":`...)
	dst = rawjson.AppendString(dst, c.Arguments)
	dst = append(dst, '}')
	return append(appendMembers(dst, c.Extra), '}')
}

func appendMembers(dst []byte, extra rawjson.Object) []byte {
	for _, e := range extra {
		dst = append(dst, ',')
		dst = rawjson.AppendString(dst, e.Key)
		dst = append(dst, ':')
		dst = append(dst, e.Value...)
	}
	return dst
}

// MarshalJSON writes the message with its reasoning as reasoning_content.
func (m Message) MarshalJSON() ([]byte, error) { return m.AppendJSON(nil, "reasoning_content"), nil }

// UnmarshalJSON reads a Chat Completions message from a copy of data.
func (m *Message) UnmarshalJSON(data []byte) error {
	parsed, err := ParseMessage(append([]byte(nil), data...))
	*m = parsed
	return err
}

// ParseMessage reads a Chat Completions message; what it keeps aliases data.
// The reasoning is read under both names that are in use.
func ParseMessage(data []byte) (Message, error) {
	m := Message{raw: data}
	err := rawjson.EachMember(data, func(key string, value []byte) (err error) {
		switch key {
		case "role", "reasoning", "reasoning_content", "name", "tool_call_id", "tool_calls":
			if rawjson.IsNull(value) { // absent; not every engine takes a null for that
				m.raw = nil
				return nil
			}
		}
		switch key {
		case "role":
			m.Role, err = rawjson.String(value)
		case "content":
			m.Content, err = content(value)
		case "reasoning", "reasoning_content":
			m.Reasoning, err = rawjson.String(value)
			m.rawReasoning = key
		case "name":
			m.Name, err = rawjson.String(value)
		case "tool_call_id":
			m.ToolCallID, err = rawjson.String(value)
		case "tool_calls":
			m.ToolCalls, err = parseToolCalls(value)
		default:
			m.Extra = append(m.Extra, rawjson.Member{Key: key, Value: value})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil && m.Role == "" {
		err = fmt.Errorf("role: missing")
	}
	return m, err
}

func content(value json.RawMessage) (json.RawMessage, error) {
	switch value[0] {
	case 'n':
		return nil, nil
	case '"', '[':
		return value, nil
	}
	return nil, fmt.Errorf("a string or a list of parts expected, got %s", rawjson.Kind(value))
}

func parseToolCalls(data []byte) ([]ToolCall, error) {
	var calls []ToolCall
	err := rawjson.EachElement(data, func(value []byte) error {
		var c ToolCall
		err := rawjson.EachMember(value, func(key string, value []byte) (err error) {
			switch key {
			case "id":
				if !rawjson.IsNull(value) {
					c.ID, err = rawjson.String(value)
				}
			case "type":
			case "function":
				err = parseFunction(value, &c)
			default:
				c.Extra = append(c.Extra, rawjson.Member{Key: key, Value: value})
			}
			return err
		})
		calls = append(calls, c)
		return err
	})
	return calls, err
}

func parseFunction(data []byte, c *ToolCall) error {
	return rawjson.EachMember(data, func(key string, value []byte) (err error) {
		switch key {
		case "name":
			c.Name, err = rawjson.String(value)
		case "arguments":
			if value[0] == '"' {
				c.Arguments, err = rawjson.String(value)
			} else if !rawjson.IsNull(value) {
				c.Arguments = string(value) // some clients send the object itself
			}
		}
		return err
	})
}
