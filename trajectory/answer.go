package trajectory

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// answer is an assistant's message as far as it is compared: two that a
// harness or a template may have made of one another have the same key.
type answer struct {
	// readable is false for a record that has none or one we cannot read.
	readable bool
	// empty says that there is neither text nor a tool call.
	empty bool
	text  string
	key   [sha256.Size]byte
}

// readAnswer takes the text without the space around it and without thinking
// at its start, and the names and arguments of the tool calls.
func readAnswer(raw json.RawMessage) answer {
	m, err := llm.ParseMessage(raw)
	if err != nil {
		return answer{}
	}
	text := strings.TrimSpace(m.Text())
	if rest, ok := strings.CutPrefix(text, "<think>"); ok {
		if _, after, ok := strings.Cut(rest, "</think>"); ok {
			text = strings.TrimSpace(after)
		}
	}
	key := appendCounted(nil, text)
	for _, c := range m.ToolCalls {
		key = appendCounted(key, c.Name)
		key = appendCounted(key, canonicalArguments(c.Arguments))
	}
	return answer{readable: true, empty: text == "" && len(m.ToolCalls) == 0, text: text, key: sha256.Sum256(key)}
}

func appendCounted(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// answered is the reply of the turn, read once.
func (t *turn) answered() *answer {
	if t.reply == nil {
		a := answer{}
		if !rawjson.IsNull(t.call.Reply) {
			a = readAnswer(t.call.Reply)
		}
		t.reply = &a
	}
	return t.reply
}

// carriesAnswer reports whether the messages of t have the answer of j where it
// belongs. Without messages or a reply to go by it is true.
func carriesAnswer(j, t *turn) bool {
	if len(j.call.Messages) == 0 || len(t.call.Messages) == 0 || !j.answered().readable {
		return true
	}
	if len(t.call.Messages) <= len(j.call.Messages) {
		return false
	}
	next := t.call.Messages[len(j.call.Messages)]
	if role(next) != "assistant" {
		return false
	}
	if bytes.Equal(next, j.call.Reply) {
		return true
	}
	came := readAnswer(next)
	return came.readable && came.key == j.reply.key
}

var errFound = errors.New("found")

// role reads the role of a message and nothing after it.
func role(raw json.RawMessage) string {
	var r string
	_ = rawjson.EachMember(raw, func(key string, value []byte) error {
		if key != "role" {
			return nil
		}
		if s, err := rawjson.String(value); err == nil {
			r = s
		}
		return errFound
	})
	return r
}

// quotable is the part of the text that a harness puts into later messages:
// of a summary that was asked for in tags, as Claude Code and Qwen Code do, what
// is in them.
func (a answer) quotable() string {
	for _, tag := range []string{"summary>", "state_snapshot>"} {
		if _, rest, ok := strings.Cut(a.text, "<"+tag); ok {
			if inside, _, ok := strings.Cut(rest, "</"+tag); ok {
				return strings.TrimSpace(inside)
			}
		}
	}
	return a.text
}
