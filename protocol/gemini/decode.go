package gemini

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// Decode reads a call. What it returns aliases body, so that what the harness
// wrote goes on as it is. The model and what is wanted of it are in the URL.
func (Protocol) Decode(r *http.Request, body []byte) (llm.Request, error) {
	model, verb, err := parseCall(r.URL.Path)
	if err != nil {
		return llm.Request{}, err
	}
	d := decoder{asked: asked{model: model}}
	d.req.Model = model
	switch verb {
	case "streamGenerateContent":
		query := r.URL.Query()
		d.req.Stream = true
		d.array = query.Get("alt") != "sse" && query.Get("$alt") != "sse"
	case "countTokens":
		d.req.CountOnly = true
	}
	if err := rawjson.Valid(body); err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	if err := eachField("", body, d.field); err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	return d.finish()
}

// parseCall splits the path of a call. A model's name may have colons and
// slashes; "models/" in front of it is not part of it.
func parseCall(path string) (model, verb string, err error) {
	_, call, _ := strings.Cut(path, "/models/")
	call = strings.TrimPrefix(call, "models/")
	at := strings.LastIndexByte(call, ':')
	if at <= 0 {
		return "", "", llm.Errorf(llm.NotFound, "models/%s is no call: models/NAME:generateContent is one", call)
	}
	model, verb = call[:at], call[at+1:]
	if !slices.Contains([]string{"generateContent", "streamGenerateContent", "countTokens"}, verb) {
		return "", "", llm.Errorf(llm.NotFound, "models/%s cannot %s here: it can generateContent, streamGenerateContent and countTokens", model, verb)
	}
	return model, verb, nil
}

// decoder collects the fields of a request. Of a field that stands twice the
// last counts.
type decoder struct {
	asked
	req      llm.Request
	system   *llm.Message
	messages []llm.Message
	tools    []tool
	choice   choice
	format   format
	top      *int
}

func (d *decoder) field(at, key string, value []byte) (err error) {
	switch key {
	case "contents":
		d.messages, err = parseContents(at, value)
	case "systemInstruction":
		d.system, err = parseSystem(at, value)
	case "tools":
		d.tools, err = parseTools(at, value)
	case "toolConfig":
		d.choice, err = parseToolConfig(at, value)
	case "generationConfig":
		err = eachField(at, value, d.generation)
	case "generateContentRequest":
		if !d.req.CountOnly {
			return errors.New("is for countTokens")
		}
		err = eachField(at, value, d.field)
	case "config": // the clients' own name for all that is not contents
		err = eachField(at, value, d.config)
	case "cachedContent":
		err = errors.New("nothing is cached here: send the contents themselves")
	case "model", "safetySettings", "labels", "store", "serviceTier":
		// They are Google's own business.
	default:
		d.ride(at, value)
	}
	return err
}

func (d *decoder) config(at, key string, value []byte) error {
	switch key {
	case "systemInstruction", "tools", "toolConfig", "safetySettings", "cachedContent", "labels":
		return d.field(at, key, value)
	}
	return d.generation(at, key, value)
}

// ride takes a field along that is not known here, for an engine that knows it.
func (d *decoder) ride(at string, value []byte) {
	name := at[strings.LastIndexByte(at, '.')+1:]
	d.req.Extra = append(d.req.Extra, rawjson.Member{Key: name, Value: value})
}

func (d *decoder) finish() (llm.Request, error) {
	r := &d.req
	if len(d.messages) == 0 {
		return llm.Request{}, llm.InvalidRequest(&llm.FieldError{Field: "contents", Err: errors.New("at least one content expected")})
	}
	if d.system != nil {
		r.Messages = append(r.Messages, *d.system)
	}
	r.Messages = append(r.Messages, d.messages...)
	tools, err := d.choice.among(d.tools)
	if err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	for _, t := range tools {
		r.Tools = append(r.Tools, t.json())
	}
	if len(r.Tools) > 0 {
		r.ToolChoice = d.choice.json()
	}
	if r.ResponseFormat, err = d.format.json(); err != nil {
		return llm.Request{}, llm.InvalidRequest(err)
	}
	if d.logprobs {
		if d.top == nil {
			d.top = new(int)
		}
		r.TopLogprobs = d.top
	}
	r.Reply = d.asked
	return *r, nil
}

func parseSystem(at string, value []byte) (*llm.Message, error) {
	var c content
	parts := value
	if value[0] == '{' {
		if o, err := rawjson.ParseObject(value); err == nil && o.Get("parts") != nil {
			parts, at = o.Get("parts"), at+".parts"
		}
	}
	if rawjson.IsNull(parts) {
		return nil, nil
	}
	err := eachOf(at, parts, func(at string, value []byte) error {
		p, err := parsePart(at, value)
		if err != nil {
			return err
		}
		if p.call != nil || p.response != nil {
			return errors.New("a function has no place here")
		}
		return c.add(at, p)
	})
	if err != nil || len(c.parts) == 0 {
		return nil, err
	}
	return &llm.Message{Role: "system", Content: c.json(false)}, nil
}

func unknownWord(what string, words ...string) error {
	return fmt.Errorf("is %q, must be one of %s", what, strings.Join(words, ", "))
}
