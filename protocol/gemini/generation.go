package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"polar/rawjson"
)

// maxTopLogprobs is Google's own bound.
const maxTopLogprobs = 20

// generation reads one field of generationConfig.
func (d *decoder) generation(at, key string, value []byte) (err error) {
	s := &d.req.Sampling
	switch key {
	case "temperature":
		s.Temperature, err = parseFloat(value)
	case "topP":
		s.TopP, err = parseFloat(value)
	case "topK":
		s.TopK, err = parseWithin(value, -1, math.MaxInt32)
	case "maxOutputTokens":
		s.MaxTokens, err = parseWithin(value, 1, math.MaxInt32)
	case "seed":
		s.Seed, err = parseInt(value)
	case "stopSequences":
		s.Stop = []string{}
		err = eachOf(at, value, func(_ string, value []byte) error {
			stop, err := rawjson.String(value)
			s.Stop = append(s.Stop, stop)
			return err
		})
	case "candidateCount":
		n, err := parseInt(value)
		if err == nil && *n != 1 {
			err = fmt.Errorf("is %d, must be 1: each call is one sample", *n)
		}
		return err
	case "presencePenalty":
		d.penalty("presence_penalty", value)
	case "frequencyPenalty":
		d.penalty("frequency_penalty", value)
	case "responseLogprobs":
		d.logprobs, err = parseBool(value)
	case "logprobs":
		d.top, err = parseWithin(value, 0, maxTopLogprobs)
	case "thinkingConfig":
		err = d.thinking(at, value)
	default:
		return d.output(at, key, value)
	}
	return err
}

func (d *decoder) penalty(name string, value []byte) {
	d.req.Extra = append(d.req.Extra, rawjson.Member{Key: name, Value: value})
}

// output reads what says of which kind an answer is to be.
func (d *decoder) output(at, key string, value []byte) (err error) {
	switch key {
	case "responseMimeType":
		d.format.mimeAt = at
		d.format.mime, err = rawjson.String(value)
	case "responseSchema", "responseJsonSchema":
		if value[0] != '{' {
			return fmt.Errorf("an object expected, got %s", rawjson.Kind(value))
		}
		d.format.schema = jsonSchema(value)
	case "responseModalities":
		var kinds []string
		err = eachOf(at, value, func(_ string, value []byte) error {
			kind, err := rawjson.String(value)
			kinds = append(kinds, kind)
			return err
		})
		if err == nil && len(kinds) > 0 && !slices.Contains(kinds, "TEXT") {
			err = errors.New("an answer here is TEXT")
		}
	case "mediaResolution", "speechConfig", "imageConfig", "audioTimestamp", "routingConfig", "modelSelectionConfig",
		"modelConfig", "enableAffectiveDialog", "enableEnhancedCivicAnswers", "httpOptions", "abortSignal", "automaticFunctionCalling":
		// They are about other kinds of answers, or Google's own business.
	default:
		d.ride(at, value)
	}
	return err
}

// thinking reads thinkingConfig. How much is thought at most is nothing that
// engines know; that none of it is wanted, they do.
func (d *decoder) thinking(at string, value []byte) error {
	thinks := ""
	err := eachField(at, value, func(_, key string, value []byte) (err error) {
		switch key {
		case "includeThoughts":
			d.thoughts, err = parseBool(value)
			if d.thoughts && thinks == "" {
				thinks = "true"
			}
		case "thinkingBudget":
			budget, err := parseInt(value)
			if err != nil {
				return err
			}
			if thinks = "true"; *budget == 0 {
				thinks = "false"
			}
		case "thinkingLevel":
			return d.thinkingLevel(value)
		}
		return err
	})
	if thinks != "" {
		d.req.Sampling.ChatTemplateKwargs.Set("enable_thinking", json.RawMessage(thinks))
	}
	return err
}

func (d *decoder) thinkingLevel(value []byte) error {
	level, err := rawjson.String(value)
	if err != nil {
		return err
	}
	switch effort := strings.ToLower(level); effort {
	case "low", "medium", "high":
		d.req.Extra.Set("reasoning_effort", rawjson.Quote(effort))
	case "minimal":
		d.req.Extra.Set("reasoning_effort", rawjson.Quote("low")) // the least that all engines know
	}
	return nil
}

// format says what an answer must look like.
type format struct {
	mime, mimeAt string
	schema       json.RawMessage
}

// json is Chat's response_format, or nil. Both names of the field for a schema
// mean that the answer is JSON.
func (f format) json() (json.RawMessage, error) {
	switch {
	case f.mime != "" && f.mime != "text/plain" && f.mime != "application/json":
		return nil, inField(f.mimeAt, unknownWord(f.mime, "text/plain", "application/json"))
	case f.schema != nil:
		b := append([]byte(`{"type":"json_schema","json_schema":{"name":"response","schema":`), f.schema...)
		return append(b, `,"strict":true}}`...), nil
	case f.mime == "application/json":
		return json.RawMessage(`{"type":"json_object"}`), nil
	}
	return nil, nil
}
