package gemini

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"polar/rawjson"
)

// part is one part of a content as the harness wrote it.
type part struct {
	text, call, response, inline, file json.RawMessage
	thought                            bool
	signature                          string
}

func (p part) words() string {
	if p.text == nil {
		return ""
	}
	s, _ := rawjson.String(p.text) // parsePart saw that it is one
	return s
}

func parsePart(at string, value []byte) (part, error) {
	var p part
	if value[0] == '"' {
		p.text = value
		return p, nil
	}
	unknown := ""
	err := eachField(at, value, func(_, key string, value []byte) (err error) {
		switch key {
		case "text":
			p.text = value
			_, err = rawjson.String(value)
		case "thought":
			p.thought, err = parseBool(value)
		case "thoughtSignature":
			p.signature, err = rawjson.String(value)
		case "functionCall":
			p.call = value
		case "functionResponse":
			p.response = value
		case "inlineData":
			p.inline = value
		case "fileData":
			p.file = value
		case "videoMetadata", "mediaResolution", "partMetadata":
		default:
			unknown = key
		}
		return err
	})
	// What would leave a hole in the prompt is refused; a field beside the known
	// ones is not.
	if err == nil && unknown != "" && p.text == nil && p.call == nil && p.response == nil && p.inline == nil && p.file == nil {
		err = inField(at+"."+unknown, errors.New("a part of this kind cannot be passed on"))
	}
	return p, err
}

// content collects the parts of a message.
type content struct{ parts []chatPart }

// chatPart is a text, as a JSON string, or another part as Chat has it.
type chatPart struct{ text, media json.RawMessage }

// add takes in what p has of text and media. A text without a letter is nothing.
func (c *content) add(at string, p part) error {
	if p.text != nil && string(p.text) != `""` {
		c.parts = append(c.parts, chatPart{text: p.text})
	}
	if p.inline != nil {
		added, err := parseInline(at+".inlineData", p.inline)
		if err != nil {
			return err
		}
		c.parts = append(c.parts, added)
	}
	if p.file != nil {
		added, err := parseFile(at+".fileData", p.file)
		if err != nil {
			return err
		}
		c.parts = append(c.parts, added)
	}
	return nil
}

// json is the content of a Chat message: a string where it is one text. What a
// model said is one text however many pieces it came in.
func (c *content) json(join bool) json.RawMessage {
	texts := 0
	for _, p := range c.parts {
		if p.text != nil {
			texts++
		}
	}
	switch {
	case len(c.parts) == 0:
		return json.RawMessage(`""`)
	case len(c.parts) == 1 && texts == 1:
		return c.parts[0].text
	case join && texts == len(c.parts):
		var all strings.Builder
		for _, p := range c.parts {
			s, _ := rawjson.String(p.text) // parsePart saw that it is one
			all.WriteString(s)
		}
		return rawjson.Quote(all.String())
	}
	out := []byte{'['}
	for i, p := range c.parts {
		if i > 0 {
			out = append(out, ',')
		}
		if p.text == nil {
			out = append(out, p.media...)
			continue
		}
		out = append(out, `{"type":"text","text":`...)
		out = append(append(out, p.text...), '}')
	}
	return append(out, ']')
}

// parseInline reads data that is in the request itself.
func parseInline(at string, value []byte) (chatPart, error) {
	var mime string
	var data json.RawMessage
	err := eachField(at, value, func(_, key string, value []byte) (err error) {
		switch key {
		case "mimeType":
			mime, err = rawjson.String(value)
		case "data":
			data = value
		}
		return err
	})
	if err != nil {
		return chatPart{}, err
	}
	encoded, err := base64Of(data)
	if err != nil {
		return chatPart{}, inField(at+".data", err)
	}
	kind, _, _ := strings.Cut(mime, "/")
	if kind == "text" || mime == "application/json" {
		text, err := base64.StdEncoding.DecodeString(string(encoded) + padding(encoded))
		if err != nil {
			return chatPart{}, inField(at+".data", errNoBase64)
		}
		return chatPart{text: rawjson.Quote(string(text))}, nil
	}
	return mediaPart(at, mime, func(dst []byte) []byte {
		quoted := rawjson.Quote("data:" + mime + ";base64,")
		dst = append(dst, quoted[:len(quoted)-1]...)
		dst = append(append(dst, encoded...), padding(encoded)...)
		return append(dst, '"')
	}, len(encoded))
}

// padding is what base64 lacks at its end: Google does not ask for it.
func padding(encoded []byte) string { return "==="[:-len(encoded)&3] }

// parseFile reads a reference to data that is elsewhere.
func parseFile(at string, value []byte) (chatPart, error) {
	mime := "image/*"
	var uri json.RawMessage
	err := eachField(at, value, func(_, key string, value []byte) (err error) {
		switch key {
		case "mimeType":
			mime, err = rawjson.String(value)
		case "fileUri":
			uri = value
			_, err = rawjson.String(value)
		}
		return err
	})
	if err == nil && uri == nil {
		err = inField(at+".fileUri", errors.New("missing"))
	}
	if err != nil {
		return chatPart{}, err
	}
	return mediaPart(at, mime, func(dst []byte) []byte { return append(dst, uri...) }, len(uri))
}

// mediaPart is a Chat part that has a URL, which appendURL writes.
func mediaPart(at, mime string, appendURL func([]byte) []byte, size int) (chatPart, error) {
	kind, _, _ := strings.Cut(mime, "/")
	switch kind {
	case "image", "audio", "video":
	default:
		return chatPart{}, inField(at+".mimeType", fmt.Errorf("Unsupported MIME type: %s", mime)) //nolint:staticcheck // Google's words
	}
	b := make([]byte, 0, size+len(mime)+64)
	b = append(b, `{"type":"`+kind+`_url","`+kind+`_url":{"url":`...)
	return chatPart{media: append(appendURL(b), "}}"...)}, nil
}

var errNoBase64 = errors.New("base64 expected")

// base64Of takes the data out of a JSON string. Google takes both alphabets of
// base64; what goes on is in the one that data URLs have.
func base64Of(value json.RawMessage) ([]byte, error) {
	if len(value) < 2 || value[0] != '"' {
		return nil, errNoBase64
	}
	data := []byte(value[1 : len(value)-1])
	if bytes.IndexByte(data, '\\') >= 0 {
		s, err := rawjson.String(value)
		if err != nil {
			return nil, errNoBase64
		}
		data = []byte(s)
	}
	changed := false
	for i, c := range data {
		switch {
		case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=':
			continue
		case c != '-' && c != '_':
			return nil, errNoBase64
		}
		if !changed {
			data, changed = bytes.Clone(data), true
		}
		if data[i] = '+'; c == '_' {
			data[i] = '/'
		}
	}
	return data, nil
}
