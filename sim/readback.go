package sim

import (
	"bytes"
	"encoding/json"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// read finds the conversation of which prompt is the rendering, as far as
// policies look at one. It is what /generate has instead of messages.
func (t template) read(prompt []int32) conversation {
	c := conversation{thinking: true, openTurn: true}
	for len(prompt) > 0 {
		if prompt[0] != StartOfTurn {
			prompt = prompt[1:]
			continue
		}
		end := indexOf(prompt, EndOfTurn)
		turn := prompt[1:end]
		prompt = prompt[end:]
		role, text, _ := strings.Cut(string(plainText(turn)), "\n")
		switch {
		case len(prompt) == 0: // the turn that is to be written
			c.thinking = indexOf(turn, StartOfThinking) == len(turn)
		case role == "system" && strings.Contains(text, toolsHeading) && len(c.messages) == 0 && c.tools == nil:
			before, tools, _ := strings.Cut(text, toolsHeading)
			c.tools = readTools([]byte(tools))
			if before = strings.TrimSuffix(before, "\n\n"); before != "" {
				c.messages = append(c.messages, llm.Message{Role: role, Content: rawjson.Quote(before)})
			}
		default:
			c.messages = append(c.messages, llm.Message{Role: role, Content: rawjson.Quote(text)})
		}
	}
	return c
}

// readTools reads the tools of a rendered prompt, one after the other.
func readTools(text []byte) (tools []json.RawMessage) {
	for text = bytes.TrimSpace(text); len(text) > 0; text = bytes.TrimSpace(text) {
		w := rawjson.NewWalker(text)
		tool, err := w.Value()
		if err != nil || len(tool) == 0 {
			return tools
		}
		tools = append(tools, tool)
		text = text[len(tool):]
	}
	return tools
}

// plainText is what ids say without special tokens.
func plainText(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		if !IsSpecial(id) {
			out = appendToken(out, id)
		}
	}
	return out
}

// indexOf is where id first is, or the length of ids.
func indexOf(ids []int32, id int32) int {
	for i, at := range ids {
		if at == id {
			return i
		}
	}
	return len(ids)
}
