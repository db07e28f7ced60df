package export

import (
	"encoding/json"
	"fmt"
	"strings"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// parseMessages reads messages of a trace.
func parseMessages(s *session, t *polar.Trace, list []json.RawMessage) ([]llm.Message, error) {
	out := make([]llm.Message, 0, len(list))
	for i, raw := range list {
		m, err := llm.ParseMessage(raw)
		if err != nil {
			return nil, fmt.Errorf("session %s, %s, message %d: %w", s.result.Session, t.ID, i, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// responseText is what the assistant said, turn by turn.
func responseText(list []llm.Message) string {
	var texts []string
	for _, m := range list {
		if text := m.Text(); m.Role == "assistant" && text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

// onlyText reports whether the content has nothing but text.
func onlyText(m llm.Message) bool {
	if rawjson.IsNull(m.Content) || m.Content[0] == '"' {
		return true
	}
	only := true
	err := rawjson.EachElement(m.Content, func(part []byte) error {
		o, err := rawjson.ParseObject(part)
		if err != nil {
			return err
		}
		kind, err := rawjson.String(o.Get("type"))
		only = only && kind == "text"
		return err
	})
	return only && err == nil
}

// object is arguments as a JSON object, or nil where they are none.
func object(arguments string) json.RawMessage {
	raw := []byte(strings.TrimSpace(arguments))
	if len(raw) == 0 || raw[0] != '{' || rawjson.Valid(raw) != nil {
		return nil
	}
	return raw
}

// rawList is a list that is [] when empty.
func rawList(list []json.RawMessage) []json.RawMessage {
	if list == nil {
		return []json.RawMessage{}
	}
	return list
}
