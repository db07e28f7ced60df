package anthropic

import (
	"iter"
	"net/http"
	"strconv"

	"polar/llm"
	"polar/rawjson"
)

// Reply writes the answer to a request that Decode made. A nil error means that
// all of it was handed to the connection.
func (p Protocol) Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error {
	a := newAnswer(req)
	w.Header().Set(requestIDHeader, "req_"+a.id)
	if req.Stream {
		return newStream(w, a).write(events)
	}
	body, err := a.collect(events)
	if err != nil {
		p.Fail(w, asError(err))
		return err
	}
	return writeWhole(w, body)
}

func writeWhole(w http.ResponseWriter, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return err
	}
	// Without it a connection that broke would not be noticed.
	return http.NewResponseController(w).Flush()
}

// collect is the body of an unstreamed answer.
func (a answer) collect(events iter.Seq2[llm.Event, error]) ([]byte, error) {
	content := &whole{hidden: a.hidden}
	b := blocks{answer: a, to: content}
	var t tally
	var body []byte
	for e, err := range events { // to its end: the engine's connection is of use again
		if err != nil {
			return nil, err
		}
		if err := b.add(e); err != nil {
			return nil, err
		}
		t.add(e)
		if e.Finish != "" {
			body = append(a.appendMessage(nil, content.list), ',')
			body = appendStop(body, b.stopReason(e), e.Stop)
			body = append(body, `,"usage":`...)
			body = append(appendUsage(body, t.usage), '}')
		}
	}
	if body == nil {
		return nil, errNoEnd()
	}
	return body, nil
}

func errNoEnd() *llm.Error {
	return llm.Errorf(llm.EngineFailed, "the engine's answer was cut off before its end")
}

// appendStop writes the two members that say why an answer ended.
func appendStop(dst []byte, reason, sequence string) []byte {
	dst = append(dst, `"stop_reason":"`...)
	dst = append(dst, reason...)
	dst = append(dst, `","stop_sequence":`...)
	if reason != "stop_sequence" {
		return append(dst, "null"...)
	}
	return rawjson.AppendString(dst, sequence)
}

// appendUsage writes how many tokens there were. What came from a cache counts
// apart from the input.
func appendUsage(dst []byte, u llm.Usage) []byte {
	dst = append(dst, `{"input_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens-u.CachedTokens), 10)
	dst = append(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
	dst = append(dst, `,"output_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CompletionTokens), 10)
	return append(dst, '}')
}

// whole writes the content of an unstreamed answer.
type whole struct {
	hidden bool
	list   []byte // the blocks, with commas between
	text   []byte // of the open block
}

func (c *whole) openBlock(kind string, call llm.ToolCall) {
	c.text = c.text[:0]
	if len(c.list) > 0 {
		c.list = append(c.list, ',')
	}
	c.list = append(c.list, `{"type":"`...)
	c.list = append(c.list, kind...)
	if kind == toolBlock {
		c.list = append(c.list, `","id":`...)
		c.list = rawjson.AppendString(c.list, call.ID)
		c.list = append(c.list, `,"name":`...)
		c.list = rawjson.AppendString(c.list, call.Name)
		c.list = append(c.list, `,"input":`...)
		return
	}
	c.list = append(c.list, `","`...)
	c.list = append(c.list, kind...) // the text is under the name of the kind
	c.list = append(c.list, `":`...)
}

func (c *whole) growBlock(_, text string) { c.text = append(c.text, text...) }

func (c *whole) closeBlock(kind string) {
	text := string(c.text)
	switch kind {
	case toolBlock:
		c.list = append(c.list, toolInput(c.text)...)
	case thinkingBlock:
		shown := text
		if c.hidden {
			shown = ""
		}
		c.list = rawjson.AppendString(c.list, shown)
		c.list = append(c.list, `,"signature":`...)
		c.list = rawjson.AppendString(c.list, sign(text))
	default:
		c.list = rawjson.AppendString(c.list, text)
	}
	c.list = append(c.list, '}')
}

// toolInput is the input of a tool call, which must be an object, in the bytes
// that the model wrote. What is none is wrapped as Claude Code does it when it
// reads such input from a stream, so that the tool refuses it and nothing is lost.
func toolInput(arguments []byte) []byte {
	if len(arguments) == 0 {
		return []byte("{}")
	}
	if rawjson.Valid(arguments) == nil && rawjson.Kind(arguments) == "an object" {
		return arguments
	}
	b := append([]byte(nil), `{"__unparsedToolInput":{"raw":`...)
	b = rawjson.AppendString(b, string(arguments))
	b = append(b, `,"len":`...)
	b = strconv.AppendInt(b, int64(len(arguments)), 10)
	return append(b, "}}"...)
}
