package responses

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// item is what the items of the input have, of whatever type they are.
type item struct {
	typ, id, role, callID    string
	name, namespace          string
	content, output, tools   json.RawMessage
	arguments, input         json.RawMessage
	summary, encrypted       json.RawMessage
	action, operation, state json.RawMessage
}

func parseItem(at string, data []byte) (item, error) {
	var it item
	if data[0] != '{' {
		return it, &llm.FieldError{Field: at, Err: fmt.Errorf("an object expected, got %s", rawjson.Kind(data))}
	}
	err := rawjson.EachMember(data, func(key string, value []byte) (err error) {
		if rawjson.IsNull(value) {
			return nil
		}
		if text, raw := it.member(key); text != nil {
			*text, err = rawjson.String(value)
		} else if raw != nil {
			*raw = value
		}
		return openai.InField(at+"."+key, err)
	})
	return it, err
}

// member is where a member of an item goes, as text or as it is; those that say
// nothing to a model go nowhere.
func (it *item) member(key string) (text *string, raw *json.RawMessage) {
	switch key {
	case "type":
		text = &it.typ
	case "id":
		text = &it.id
	case "role":
		text = &it.role
	case "call_id":
		text = &it.callID
	case "name":
		text = &it.name
	case "namespace":
		text = &it.namespace
	case "content":
		raw = &it.content
	case "output":
		raw = &it.output
	case "tools":
		raw = &it.tools
	case "arguments":
		raw = &it.arguments
	case "input":
		raw = &it.input
	case "summary":
		raw = &it.summary
	case "encrypted_content":
		raw = &it.encrypted
	case "action":
		raw = &it.action
	case "operation":
		raw = &it.operation
	case "status":
		raw = &it.state
	}
	return text, raw
}

// encryptedPrefix begins the reasoning that we gave a harness to keep. It is
// not secret: the harness asked for it.
const encryptedPrefix = "polar:"

func encrypt(reasoning []byte) string {
	return encryptedPrefix + base64.StdEncoding.EncodeToString(reasoning)
}

// reasoning is what the model thought: as we gave it, or what can be read.
func (it item) reasoning(at string) (string, error) {
	if it.encrypted != nil {
		s, err := rawjson.String(it.encrypted)
		if err != nil {
			return "", &llm.FieldError{Field: at + ".encrypted_content", Err: err}
		}
		if ours, ok := strings.CutPrefix(s, encryptedPrefix); ok {
			if text, err := base64.StdEncoding.DecodeString(ours); err == nil && len(text) > 0 {
				return string(text), nil
			}
		}
	}
	text, err := readable(at+".content", it.content)
	if err == nil && text == "" {
		return readable(at+".summary", it.summary)
	}
	return text, err
}

// readable joins the texts of a list of parts.
func readable(at string, list json.RawMessage) (string, error) {
	if list == nil {
		return "", nil
	}
	var texts []string
	err := rawjson.EachElement(list, func(value []byte) error {
		p, err := parsePart(fmt.Sprintf("%s[%d]", at, len(texts)), value)
		if err != nil {
			return err
		}
		s, _ := rawjson.String(p.text) // an image says nothing
		texts = append(texts, s)
		return nil
	})
	return strings.Join(texts, "\n\n"), openai.InField(at, err)
}

// text reads a member that must be there as a string.
func (it item) text(at, member string, value json.RawMessage) (string, error) {
	if value == nil {
		return "", &llm.FieldError{Field: at + "." + member, Err: errMissing}
	}
	s, err := rawjson.String(value)
	return s, openai.InField(at+"."+member, err)
}

// rawText is the text of a JSON string, and of any other value its own.
func rawText(value json.RawMessage) string {
	if len(value) > 0 && value[0] == '"' {
		if s, err := rawjson.String(value); err == nil {
			return s
		}
	}
	return string(value)
}
