package responses

import (
	"bytes"
	"encoding/json"
	"strconv"

	"polar/rawjson"
)

// send begins an event and reports whether there is a stream for it. What else
// is in the event is appended to buf; done sends it.
func (a *answer) send(typ string) bool {
	if a.out == nil {
		return false
	}
	b := append(a.buf[:0], `{"type":"`...)
	b = append(b, typ...)
	b = append(b, `","sequence_number":`...)
	a.buf = strconv.AppendInt(b, int64(a.seq), 10)
	a.seq++
	return true
}

func (a *answer) done(typ string) {
	a.buf = append(a.buf, '}')
	a.out.Add(typ, a.buf)
}

func (a *answer) sendResponse(typ string, o outcome) {
	if a.send(typ) {
		a.buf = append(a.buf, `,"response":`...)
		a.buf = a.appendResponse(a.buf, o)
		a.done(typ)
	}
}

func (a *answer) sendItem(typ string, p *piece, item []byte) {
	if a.send(typ) {
		a.buf = append(a.buf, `,"output_index":`...)
		a.buf = strconv.AppendInt(a.buf, int64(p.index), 10)
		a.buf = append(a.buf, `,"item":`...)
		a.buf = append(a.buf, item...)
		a.done(typ)
	}
}

// sendOf begins an event about an item that was sent before.
func (a *answer) sendOf(typ string, p *piece) bool {
	if !a.send(typ) {
		return false
	}
	a.buf = append(a.buf, `,"item_id":`...)
	a.buf = rawjson.AppendString(a.buf, p.id)
	a.buf = append(a.buf, `,"output_index":`...)
	a.buf = strconv.AppendInt(a.buf, int64(p.index), 10)
	switch p.kind {
	case reasoningPiece:
		a.buf = append(a.buf, `,"summary_index":0`...)
	case messagePiece:
		a.buf = append(a.buf, `,"content_index":0`...)
	case functionPiece, customPiece, builtinPiece:
	}
	return true
}

// sendBegin tells that there is an item.
func (a *answer) sendBegin(p *piece) {
	if a.out == nil || p.kind == builtinPiece {
		return
	}
	a.sendItem("response.output_item.added", p, a.appendItem(nil, p, "in_progress"))
	a.sendPart("added", p)
}

// sendLate tells of an item that is shown only now that it is whole.
func (a *answer) sendLate(p *piece) {
	if a.out == nil {
		return
	}
	text := p.text
	if p.kind == functionPiece {
		p.text = nil
	}
	a.sendItem("response.output_item.added", p, a.appendItem(nil, p, "in_progress"))
	p.text = text
	if p.kind == functionPiece && len(text) > 0 {
		a.sendDelta(p, string(text), nil)
	}
}

// sendDelta tells what was added to an item.
func (a *answer) sendDelta(p *piece, delta string, logprobs json.RawMessage) {
	typ := ""
	switch p.kind {
	case reasoningPiece:
		typ = "response.reasoning_summary_text.delta"
	case messagePiece:
		typ = "response.output_text.delta"
	case functionPiece:
		typ = "response.function_call_arguments.delta"
	case customPiece:
		typ = "response.custom_tool_call_input.delta"
	case builtinPiece:
		return
	}
	if !a.sendOf(typ, p) {
		return
	}
	a.buf = append(a.buf, `,"delta":`...)
	a.buf = rawjson.AppendString(a.buf, delta)
	if p.kind == messagePiece {
		a.buf = append(a.buf, `,"logprobs":[`...)
		a.buf = append(a.buf, logprobs...)
		a.buf = append(a.buf, ']')
	}
	a.done(typ)
}

// sendEnd tells that nothing is added to an item any more.
func (a *answer) sendEnd(p *piece) {
	if a.out == nil {
		return
	}
	typ, member := "", ""
	switch p.kind {
	case reasoningPiece:
		typ, member = "response.reasoning_summary_text.done", `,"text":`
	case messagePiece:
		typ, member = "response.output_text.done", `,"text":`
	case functionPiece:
		typ, member = "response.function_call_arguments.done", `,"arguments":`
	case customPiece:
		typ, member = "response.custom_tool_call_input.done", `,"input":`
	case builtinPiece:
	}
	if typ != "" && a.sendOf(typ, p) {
		if p.kind == functionPiece {
			a.buf = append(a.buf, `,"name":`...)
			a.buf = rawjson.AppendString(a.buf, p.tool.name)
		}
		a.buf = append(a.buf, member...)
		a.buf = rawjson.AppendString(a.buf, string(p.text))
		if p.kind == messagePiece {
			a.buf = append(a.buf, `,"logprobs":`...)
			a.buf = appendJoined(a.buf, p.logprobs)
		}
		a.done(typ)
	}
	a.sendPart("done", p)
	a.sendItem("response.output_item.done", p, p.whole)
}

// sendPart tells that the one part of a reasoning or a message begins or ends.
func (a *answer) sendPart(what string, p *piece) {
	typ := ""
	switch p.kind {
	case reasoningPiece:
		typ = "response.reasoning_summary_part." + what
	case messagePiece:
		typ = "response.content_part." + what
	case functionPiece, customPiece, builtinPiece:
		return
	}
	if !a.sendOf(typ, p) {
		return
	}
	a.buf = append(a.buf, `,"part":`...)
	if p.kind == reasoningPiece {
		a.buf = appendSummary(a.buf, p.text)
	} else {
		a.buf = a.appendText(a.buf, p)
	}
	a.done(typ)
}

// entries are the entries of a Chat Completions logprobs object, without the
// brackets around them; nil if there are none.
func entries(logprobs json.RawMessage) json.RawMessage {
	o, err := rawjson.ParseObject(logprobs)
	if err != nil {
		return nil
	}
	content := o.Get("content")
	if rawjson.Kind(content) != "an array" {
		return nil
	}
	if content = bytes.TrimSpace(content[1 : len(content)-1]); len(content) == 0 {
		return nil
	}
	return content
}

// appendJoined writes lists of entries as one list.
func appendJoined(dst []byte, lists []json.RawMessage) []byte {
	dst = append(dst, '[')
	for i, list := range lists {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, list...)
	}
	return append(dst, ']')
}
