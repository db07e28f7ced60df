package responses

import (
	"encoding/json"

	"polar/llm"
	"polar/rawjson"
)

// piece is an item of an answer while it is written.
type piece struct {
	kind  pieceKind
	index int
	id    string
	// text is the reasoning, the text, or what a tool is called with.
	text     []byte
	logprobs []json.RawMessage

	// Of a call: the tool, and the arguments as the model writes them for a tool
	// that takes no arguments but text.
	tool     tool
	callID   string
	freeform freeform

	// whole is the item as JSON once nothing is added to it.
	whole []byte
}

type pieceKind int

const (
	reasoningPiece pieceKind = iota
	messagePiece
	functionPiece
	customPiece
	// builtinPiece is not shown before it is whole: there are no events for
	// what it is made of.
	builtinPiece
)

// take adds what an event says to the answer.
func (a *answer) take(e llm.Event) {
	a.count(e)
	if e.Usage != nil {
		a.usage = e.Usage
	}
	if e.Reasoning != "" {
		p := a.writing(reasoningPiece)
		p.text = append(p.text, e.Reasoning...)
		a.sendDelta(p, e.Reasoning, nil)
	}
	if e.Text != "" {
		p := a.writing(messagePiece)
		p.text = append(p.text, e.Text...)
		var logprobs json.RawMessage
		if a.logprobs {
			if logprobs = entries(e.Logprobs); logprobs != nil {
				p.logprobs = append(p.logprobs, logprobs)
			}
		}
		a.sendDelta(p, e.Text, logprobs)
	}
	for _, d := range e.ToolCalls {
		a.call(d)
	}
}

// count tells the tokens of reasoning from the others. Tokens and text of an
// event need not line up: what comes with nothing to show belongs to what is
// shown next.
func (a *answer) count(e llm.Event) {
	a.unseen += len(e.Tokens)
	switch {
	case e.Reasoning != "":
		a.reasoned += a.unseen
		a.unseen = 0
	case e.Text != "" || len(e.ToolCalls) > 0:
		a.unseen = 0
	}
}

// writing is the open item of a kind; one of another kind is whole then.
func (a *answer) writing(kind pieceKind) *piece {
	if a.open == nil || a.open.kind != kind {
		a.closeOpen()
		a.open = a.begin(&piece{kind: kind})
	}
	a.newest = a.open
	return a.open
}

func (a *answer) closeOpen() {
	if a.open != nil {
		a.close(a.open, "completed")
		a.open = nil
	}
}

// call adds to a call of a tool. Calls stay open to the end, because engines may
// write to more than one at a time.
func (a *answer) call(d llm.ToolCallDelta) {
	p := a.calls[d.Index]
	if p == nil {
		a.closeOpen()
		p = a.newCall(d)
		a.calls[d.Index] = p
	}
	a.newest = p
	if d.Arguments == "" {
		return
	}
	delta := d.Arguments
	if p.kind == customPiece {
		from := len(p.text)
		p.text = p.freeform.write(p.text, d.Arguments)
		delta = string(p.text[from:])
	} else {
		p.text = append(p.text, d.Arguments...)
	}
	if delta != "" {
		a.sendDelta(p, delta, nil)
	}
}

func (a *answer) newCall(d llm.ToolCallDelta) *piece {
	p := &piece{kind: functionPiece, callID: d.ID, tool: tool{name: d.Name}}
	if t, ok := a.tools[d.Name]; ok {
		p.tool = t
		switch t.kind {
		case functionTool:
		case customTool:
			p.kind = customPiece
		case builtinTool:
			p.kind = builtinPiece
		}
	}
	if p.callID == "" {
		p.callID = itemID("call", a.base, len(a.items))
	}
	return a.begin(p)
}

// begin gives an item its place.
func (a *answer) begin(p *piece) *piece {
	p.index = len(a.items)
	p.id = itemID(a.prefix(p), a.base, p.index)
	a.items = append(a.items, p)
	a.sendBegin(p)
	return p
}

func (a *answer) prefix(p *piece) string {
	switch p.kind {
	case reasoningPiece:
		return "rs"
	case messagePiece:
		return "msg"
	case customPiece:
		return "ctc"
	case builtinPiece:
		b, _ := builtinOf(p.tool.name)
		return b.prefix
	case functionPiece:
	}
	return "fc"
}

// close makes an item whole.
func (a *answer) close(p *piece, status string) {
	switch p.kind {
	case customPiece:
		from := len(p.text)
		if p.text = p.freeform.end(p.text); len(p.text) > from {
			a.sendDelta(p, string(p.text[from:]), nil)
		}
	case builtinPiece:
		b, _ := builtinOf(p.tool.name)
		if _, fit := b.wrap(string(p.text)); !fit {
			// The harness says to the model what is wrong with it.
			p.kind = functionPiece
		}
		a.sendLate(p)
	case reasoningPiece, messagePiece, functionPiece:
	}
	p.whole = a.appendItem(nil, p, status)
	a.sendEnd(p)
}

// finish makes all items whole and says how the answer ended. Of one that was
// cut off the item that was being written is not complete.
func (a *answer) finish(finish string) outcome {
	o := outcomeOf(finish)
	if len(a.items) == 0 && o.failure == nil {
		a.writing(messagePiece) // the model said nothing, and that is its turn
	}
	for _, p := range a.items {
		if p.whole != nil {
			continue
		}
		status := "completed"
		if o.status != "completed" && p == a.newest {
			status = "incomplete"
		}
		a.close(p, status)
	}
	return o
}

// appendItem writes an item: as it is once it is whole, or at its beginning,
// when it has no text yet.
func (a *answer) appendItem(dst []byte, p *piece, status string) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, p.id)
	dst = append(dst, `,"type":"`...)
	switch p.kind {
	case reasoningPiece:
		dst = append(dst, `reasoning","summary":[`...)
		if status != "in_progress" {
			dst = appendSummary(dst, p.text)
		}
		dst = append(dst, ']')
		if a.encrypted && status != "in_progress" {
			dst = append(dst, `,"encrypted_content":`...)
			dst = rawjson.AppendString(dst, encrypt(p.text))
		}
		return append(dst, '}')
	case messagePiece:
		dst = append(dst, `message","status":"`...)
		dst = append(dst, status...)
		dst = append(dst, `","role":"assistant","content":[`...)
		if status != "in_progress" {
			dst = a.appendText(dst, p)
		}
		return append(dst, "]}"...)
	case functionPiece:
		dst = append(dst, "function_call"...)
	case customPiece:
		dst = append(dst, "custom_tool_call"...)
	case builtinPiece:
		b, _ := builtinOf(p.tool.name)
		dst = append(dst, b.item...)
	}
	dst = append(dst, `","status":"`...)
	dst = append(dst, status...)
	dst = append(dst, `","call_id":`...)
	dst = rawjson.AppendString(dst, p.callID)
	return append(appendCalled(dst, p), '}')
}

// appendCalled writes what is called and with what.
func appendCalled(dst []byte, p *piece) []byte {
	if p.kind == builtinPiece {
		b, _ := builtinOf(p.tool.name)
		if p.tool.name == "tool_search" {
			dst = append(dst, `,"execution":"client"`...)
		}
		dst = append(dst, `,"`...)
		dst = append(dst, b.member...)
		dst = append(dst, `":`...)
		value, fit := b.wrap(string(p.text))
		if !fit { // at its beginning
			value = json.RawMessage("{}")
		}
		return append(dst, value...)
	}
	dst = append(dst, `,"name":`...)
	dst = rawjson.AppendString(dst, p.tool.name)
	if p.tool.namespace != "" {
		dst = append(dst, `,"namespace":`...)
		dst = rawjson.AppendString(dst, p.tool.namespace)
	}
	member := `,"arguments":`
	if p.kind == customPiece {
		member = `,"input":`
	}
	return rawjson.AppendString(append(dst, member...), string(p.text))
}

func appendSummary(dst, text []byte) []byte {
	dst = append(dst, `{"type":"summary_text","text":`...)
	dst = rawjson.AppendString(dst, string(text))
	return append(dst, '}')
}

func (a *answer) appendText(dst []byte, p *piece) []byte {
	dst = append(dst, `{"type":"output_text","annotations":[],"logprobs":`...)
	dst = appendJoined(dst, p.logprobs)
	dst = append(dst, `,"text":`...)
	dst = rawjson.AppendString(dst, string(p.text))
	return append(dst, '}')
}
