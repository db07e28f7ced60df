package sim

import (
	"encoding/json"

	"polar/llm"
	"polar/rawjson"
)

// conversation is what a request asks about, in no engine's wire format.
type conversation struct {
	messages []llm.Message
	tools    []json.RawMessage
	// toolsOff and oneCall are tool_choice none and parallel_tool_calls false:
	// neither changes the prompt.
	toolsOff, oneCall bool
	// mustCall is the name of a tool that must be called, or anyCall; schema is
	// what the text must be an instance of. Neither changes the prompt.
	mustCall string
	schema   json.RawMessage
	// thinking is chat_template_kwargs.enable_thinking.
	thinking bool
	// openTurn ends the prompt with the start of the assistant's turn.
	openTurn bool
}

// template renders conversations to tokens in ChatML's manner.
type template struct {
	// stripReasoning leaves the reasoning of every turn before the last user
	// message out, as Qwen3's template does.
	stripReasoning bool
	// parseSpecial lets the text of messages turn into special tokens.
	parseSpecial bool
	// imageTokens is how many tokens stand for an image.
	imageTokens int
}

const toolsHeading = "You can call these tools:\n"

func (t template) render(c conversation) []int32 {
	ids := make([]int32, 0, estimate(c))
	rest := c.messages
	if len(c.tools) > 0 {
		ids = openTurn(ids, "system")
		if len(rest) > 0 && isSystem(rest[0]) {
			ids = t.content(ids, rest[0])
			ids = Encode(ids, "\n\n")
			rest = rest[1:]
		}
		ids = Encode(ids, toolsHeading)
		for _, tool := range c.tools {
			ids = t.text(ids, string(tool))
			ids = Encode(ids, "\n")
		}
		ids = closeTurn(ids)
	}
	lastUser := -1
	for i, m := range rest {
		if m.Role == "user" {
			lastUser = i
		}
	}
	for i, m := range rest {
		if m.Role != "assistant" {
			ids = openTurn(ids, roleName(m))
			ids = t.content(ids, m)
			ids = closeTurn(ids)
			continue
		}
		if t.stripReasoning && i < lastUser {
			m.Reasoning = ""
		}
		ids = openTurn(ids, m.Role)
		ids = appendAnswer(ids, answerOf(m), t.text)
		ids = closeTurn(ids)
	}
	if c.openTurn {
		ids = openTurn(ids, "assistant")
		if !c.thinking {
			ids = appendThinking(ids, "", t.text)
		}
	}
	return ids
}

// content writes what a message says. Text between two images is encoded in
// one go.
func (t template) content(dst []int32, m llm.Message) []int32 {
	if len(m.Content) == 0 || m.Content[0] != '[' {
		return t.text(dst, m.Text())
	}
	var text []byte
	_ = rawjson.EachElement(m.Content, func(part []byte) error { // what is broken ends it
		o, err := rawjson.ParseObject(part)
		if err != nil {
			return err
		}
		switch kind, _ := rawjson.String(o.Get("type")); kind {
		case "image_url", "image", "input_image":
			dst = t.text(dst, string(text))
			text = text[:0]
			for range t.imageTokens {
				dst = append(dst, ImagePlaceholder)
			}
		default:
			if s, err := rawjson.String(o.Get("text")); err == nil {
				text = append(text, s...)
			}
		}
		return nil
	})
	return t.text(dst, string(text))
}

func (t template) text(dst []int32, text string) []int32 {
	if t.parseSpecial {
		return EncodeSpecial(dst, text)
	}
	return Encode(dst, text)
}

// isSystem reports a message that states rules, under either name it has.
func isSystem(m llm.Message) bool { return m.Role == "system" || m.Role == "developer" }

func roleName(m llm.Message) string {
	if isSystem(m) {
		return "system"
	}
	return m.Role
}

func openTurn(dst []int32, role string) []int32 {
	dst = append(dst, StartOfTurn)
	dst = Encode(dst, role)
	return Encode(dst, "\n")
}

func closeTurn(dst []int32) []int32 {
	return Encode(append(dst, EndOfTurn), "\n")
}

// answer is one turn of the model before it is tokens.
type answer struct {
	reasoning string
	text      string
	calls     []call
	usage     ReportedUsage
	fault     *Fault
}

// call is a tool call; its arguments are the text that the model writes, which
// need not be valid JSON.
type call struct {
	name      string
	arguments string
}

func answerOf(m llm.Message) answer {
	a := answer{reasoning: m.Reasoning, text: m.Text()}
	for _, c := range m.ToolCalls {
		a.calls = append(a.calls, call{name: c.Name, arguments: c.Arguments})
	}
	return a
}

// encoder turns text into tokens.
type encoder func(dst []int32, text string) []int32

// appendAnswer writes a turn of the model. Sampled turns and the history are
// written by this one function, so that they differ only where the encoder or
// what the harness sent back does. Each piece of text between two special
// tokens is encoded in one go: a tokenizer does not see where we joined it.
func appendAnswer(dst []int32, a answer, encode encoder) []int32 {
	text := a.text
	if a.reasoning != "" {
		dst = append(dst, StartOfThinking)
		dst = encode(dst, "\n"+a.reasoning+"\n")
		dst = append(dst, EndOfThinking)
		text = "\n\n" + text
	}
	for i, c := range a.calls {
		if i > 0 || a.text != "" {
			text += "\n"
		}
		dst = encode(dst, text)
		text = ""
		dst = append(dst, StartOfToolCall)
		body := append(make([]byte, 0, len(c.name)+len(c.arguments)+64), callOpening...)
		body = rawjson.AppendString(body, c.name)
		body = append(body, callMiddle...)
		body = append(body, c.arguments...)
		dst = encode(dst, string(append(body, callClosing...)))
		dst = append(dst, EndOfToolCall)
	}
	return encode(dst, text)
}

// appendThinking writes a whole block of reasoning into a prompt.
func appendThinking(dst []int32, reasoning string, encode encoder) []int32 {
	dst = append(dst, StartOfThinking)
	dst = encode(dst, "\n"+reasoning+"\n")
	dst = append(dst, EndOfThinking)
	return encode(dst, "\n\n")
}

// How the body of a tool call is written between its special tokens.
const (
	callOpening = "\n{\"name\": "
	callMiddle  = ", \"arguments\": "
	callClosing = "}\n"
)

// estimate is about how many tokens a conversation has, a little too many.
func estimate(c conversation) int {
	n := 64
	for _, m := range c.messages {
		n += min(len(m.Content), 1<<20)/2 + len(m.Reasoning)/2 + 16
		for _, call := range m.ToolCalls {
			n += len(call.Arguments)/2 + 32
		}
	}
	for _, t := range c.tools {
		n += len(t)/2 + 2
	}
	return n
}
