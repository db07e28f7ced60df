package anthropic

import (
	"bytes"
	"encoding/json"
	"slices"

	"polar/rawjson"
)

// parts collects the content of a Chat message. One text alone becomes a plain
// string, so that a string and a block of the same text are one prompt.
type parts struct {
	n int
	// text is the only part so far, as a JSON string, if it is a text.
	text []byte
	// list is the parts as a JSON list that lacks its end, without text.
	list []byte
}

// content is what was added, in bytes of its own.
func (p *parts) content() json.RawMessage {
	switch {
	case p.n == 0:
		return json.RawMessage(`""`)
	case p.text != nil:
		return bytes.Clone(p.text)
	}
	return append(p.list, ']')
}

// begin makes room for one more part of a length at the end of the list.
func (p *parts) begin(length int) {
	if first := p.text; first != nil {
		p.text, p.n = nil, 0
		p.listText(first)
	}
	p.list = slices.Grow(p.list, length+len(`[{"type":"image_url","image_url":{"url":""}},]`))
	p.list = append(p.list, "[,"[min(p.n, 1)])
	p.n++
}

// addText adds a text that is a JSON string already.
func (p *parts) addText(quoted []byte) {
	if p.n == 0 {
		p.text, p.n = quoted, 1
		return
	}
	p.listText(quoted)
}

func (p *parts) listText(quoted []byte) {
	p.begin(len(quoted))
	p.list = append(p.list, `{"type":"text","text":`...)
	p.list = append(p.list, quoted...)
	p.list = append(p.list, '}')
}

// addURL adds an image from the pieces of its address, as JSON has them.
func (p *parts) addURL(pieces ...[]byte) {
	length := 0
	for _, piece := range pieces {
		length += len(piece)
	}
	p.begin(length)
	p.list = append(p.list, `{"type":"image_url","image_url":{"url":"`...)
	for _, piece := range pieces {
		p.list = append(p.list, piece...)
	}
	p.list = append(p.list, `"}}`...)
}

// mark puts a word before everything else.
func (p *parts) mark(word string) {
	switch {
	case p.n == 0:
		p.addText(rawjson.Quote(word))
	case p.text != nil:
		p.text = append([]byte(`"`+word+" "), p.text[1:]...)
	default:
		rest := *p
		*p = parts{}
		p.listText(rawjson.Quote(word))
		p.list = append(append(p.list, ','), rest.list[1:]...)
		p.n += rest.n
	}
}

// add adds a block that may stand in the words of anyone but the model.
func (p *parts) add(kind string, block rawjson.Object) error {
	switch kind {
	case "text":
		text, err := quotedOf(block, "text")
		if err == nil {
			p.addText(text)
		}
		return err
	case "image":
		source, err := parseObject(block.Get("source"))
		if err == nil {
			err = p.addImage(source)
		}
		return within("source", err)
	case "document":
		return p.addDocument(block)
	case "search_result":
		return p.addSearchResult(block)
	}
	return unknownBlock(kind)
}

func (p *parts) addImage(source rawjson.Object) error {
	kind, err := stringOf(source, "type")
	if err != nil {
		return err
	}
	switch kind {
	case "base64":
		media, err := quotedOf(source, "media_type")
		if err != nil {
			return err
		}
		data, err := quotedOf(source, "data")
		if err != nil {
			return err
		}
		p.addURL([]byte("data:"), unquoted(media), []byte(";base64,"), unquoted(data))
		return nil
	case "url":
		url, err := quotedOf(source, "url")
		if err != nil {
			return err
		}
		p.addURL(unquoted(url))
		return nil
	}
	return wrong("type", "is %q, must be base64 or url", kind)
}

// unquoted is a JSON string without its quotes, still escaped.
func unquoted(quoted []byte) []byte { return quoted[1 : len(quoted)-1] }

// addDocument adds a document with what is said of it before it. One that is no
// text cannot be shown to an engine, which is said in its place.
func (p *parts) addDocument(block rawjson.Object) error {
	title, err := stringOf(block, "title")
	if err != nil {
		return err
	}
	context, err := stringOf(block, "context")
	if err != nil {
		return err
	}
	source, err := parseObject(block.Get("source"))
	if err != nil {
		return within("source", err)
	}
	for _, said := range []string{title, context} {
		if said != "" {
			p.addText(rawjson.Quote(said))
		}
	}
	return within("source", p.addDocumentSource(source))
}

func (p *parts) addDocumentSource(source rawjson.Object) error {
	kind, err := stringOf(source, "type")
	if err != nil {
		return err
	}
	switch kind {
	case "text":
		data, err := quotedOf(source, "data")
		if err == nil {
			p.addText(data)
		}
		return err
	case "content":
		content := source.Get("content")
		if rawjson.IsNull(content) {
			return wrong("content", "missing")
		}
		return within("content", eachBlock(content, p.add))
	case "base64":
		media, err := stringOf(source, "media_type")
		p.addText(rawjson.Quote("[a document of type " + media + " that cannot be shown here]"))
		return err
	case "url":
		url, err := stringOf(source, "url")
		p.addText(rawjson.Quote("[a document that cannot be shown here: " + url + "]"))
		return err
	}
	return wrong("type", "is %q, must be text, content, base64 or url", kind)
}

func (p *parts) addSearchResult(block rawjson.Object) error {
	for _, key := range []string{"title", "source"} {
		said, err := stringOf(block, key)
		if err != nil {
			return err
		}
		if said != "" {
			p.addText(rawjson.Quote(said))
		}
	}
	content := block.Get("content")
	if rawjson.IsNull(content) {
		return nil
	}
	return within("content", eachBlock(content, p.add))
}
