// Package gemini speaks Google's generateContent to harnesses.
//
// What the format leaves open is settled so: a call of a function that has no
// id gets one from its place in the conversation; the result of a function goes
// to the model as the JSON the harness wrote; the reasoning of an answer rides
// in its thoughtSignatures, which harnesses send back where they drop thoughts;
// and an answer that calls a function with arguments that are no JSON object
// ends with MALFORMED_FUNCTION_CALL, as Google's do.
package gemini

import (
	"net/http"
	"strconv"

	"polar/llm"
	"polar/rawjson"
)

// Protocol is the wire format. It has no state.
type Protocol struct{}

// Wire is the format's name in records.
func (Protocol) Wire() string { return "gemini" }

// Routes are where model calls come in. A mux cannot tell apart what follows a
// model's name, so that these are the routes of countTokens too, and a verb that
// is not known is Decode's to refuse.
func (Protocol) Routes() []string {
	return []string{
		"POST /v1beta/models/{call...}",
		"POST /v1/models/{call...}",
		"POST /v1beta1/publishers/google/models/{call...}",
	}
}

// CountRoutes is empty: a call to count comes in by Routes, and Decode marks it.
func (Protocol) CountRoutes() []string { return nil }

// DecodeCount is Decode, which knows a call to count by its URL.
func (p Protocol) DecodeCount(r *http.Request, body []byte) (llm.Request, error) {
	return p.Decode(r, body)
}

// Count answers how many tokens a prompt has.
func (Protocol) Count(w http.ResponseWriter, _ llm.Request, tokens int) {
	b := append([]byte(`{"totalTokens":`), strconv.Itoa(tokens)...)
	writeAside(w, append(b, '}'))
}

// ModelRoutes are where a harness asks which models there are.
func (Protocol) ModelRoutes() []string { return []string{"GET /v1beta/models"} }

// Models answers which models are served.
func (Protocol) Models(w http.ResponseWriter, names []string) {
	b := []byte(`{"models":[`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = rawjson.AppendString(b, "models/"+name)
		b = append(b, `,"displayName":`...)
		b = rawjson.AppendString(b, name)
		b = append(b, `,"supportedGenerationMethods":["generateContent","countTokens"]}`...)
	}
	writeAside(w, append(b, "]}"...))
}

func writeAside(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// asked is what an answer needs to know of its request.
type asked struct {
	model    string
	array    bool // a stream is a JSON array, not server-sent events
	thoughts bool
	logprobs bool
}
