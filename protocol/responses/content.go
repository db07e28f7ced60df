package responses

import (
	"encoding/json"
	"fmt"

	"polar/llm"
	"polar/rawjson"
)

// parseContent makes of the content of an item what Chat Completions has. One
// text is a string however it was wrapped, so that a history is the same
// whichever way the harness writes it.
func parseContent(at string, value []byte) (json.RawMessage, error) {
	var parts []part
	switch value[0] {
	case '"':
		return value, nil
	case 'n':
		return json.RawMessage(`""`), nil
	case '[':
		err := rawjson.EachElement(value, func(value []byte) error {
			p, err := parsePart(fmt.Sprintf("%s[%d]", at, len(parts)), value)
			parts = append(parts, p)
			return err
		})
		if err != nil {
			return nil, err
		}
		return joinParts(parts), nil
	}
	return nil, &llm.FieldError{Field: at, Err: fmt.Errorf("a string or a list of parts expected, got %s", rawjson.Kind(value))}
}

// part is a piece of content: a text as a JSON string, or a whole Chat part.
type part struct{ text, other json.RawMessage }

func joinParts(parts []part) json.RawMessage {
	switch {
	case len(parts) == 0:
		return json.RawMessage(`""`)
	case len(parts) == 1 && parts[0].text != nil:
		return parts[0].text
	}
	size := 2
	for _, p := range parts {
		size += len(p.text) + len(p.other) + 32
	}
	b := append(make([]byte, 0, size), '[')
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		if p.text != nil {
			b = append(b, `{"type":"text","text":`...)
			b = append(b, p.text...)
			b = append(b, '}')
		} else {
			b = append(b, p.other...)
		}
	}
	return append(b, ']')
}

func parsePart(at string, data []byte) (part, error) {
	if data[0] != '{' {
		return part{}, &llm.FieldError{Field: at, Err: fmt.Errorf("an object expected, got %s", rawjson.Kind(data))}
	}
	o, err := rawjson.ParseObject(data)
	if err != nil {
		return part{}, &llm.FieldError{Field: at, Err: err}
	}
	typ, err := rawjson.String(o.Get("type"))
	if err != nil {
		return part{}, &llm.FieldError{Field: at + ".type", Err: err}
	}
	switch typ {
	case "input_text", "output_text", "text", "summary_text", "reasoning_text":
		return textPart(at+".text", o.Get("text"))
	case "refusal":
		return textPart(at+".refusal", o.Get("refusal"))
	case "input_image":
		other, err := imagePart(at, o)
		return part{other: other}, err
	case "input_audio":
		return part{other: data}, nil // Chat Completions has it in the same words
	case "input_file":
		return part{}, &llm.FieldError{Field: at + ".type", Err: fmt.Errorf("%q cannot be read here; send its text as input_text", typ)}
	}
	return part{}, &llm.FieldError{Field: at + ".type", Err: fmt.Errorf("%q is not known; known are input_text, output_text, refusal, input_image and input_audio", typ)}
}

func textPart(at string, text json.RawMessage) (part, error) {
	if rawjson.Kind(text) != "a string" {
		return part{}, &llm.FieldError{Field: at, Err: fmt.Errorf("a string expected, got %s", rawjson.Kind(text))}
	}
	return part{text: text}, nil
}

func imagePart(at string, o rawjson.Object) (json.RawMessage, error) {
	url := o.Get("image_url")
	if rawjson.IsNull(url) {
		if !rawjson.IsNull(o.Get("file_id")) {
			return nil, &llm.FieldError{Field: at + ".file_id", Err: fmt.Errorf("files are not stored here; send the image as a data URL in image_url")}
		}
		return nil, &llm.FieldError{Field: at + ".image_url", Err: errMissing}
	}
	if url[0] != '"' {
		return nil, &llm.FieldError{Field: at + ".image_url", Err: fmt.Errorf("a string expected, got %s", rawjson.Kind(url))}
	}
	b := append(make([]byte, 0, len(url)+64), `{"type":"image_url","image_url":{"url":`...)
	b = append(b, url...)
	switch detail := o.Get("detail"); string(detail) {
	case `"auto"`, `"low"`, `"high"`: // those that engines know
		b = append(append(b, `,"detail":`...), detail...)
	}
	return append(b, "}}"...), nil
}
