// Package responses speaks OpenAI's Responses to harnesses.
package responses

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// Protocol is the wire format. It has no state: what an item says of an earlier
// answer (its reasoning, which answer it was part of) is in the item itself.
type Protocol struct{}

// Wire is the format's name in records.
func (Protocol) Wire() string { return "responses" }

// Routes are where model calls come in.
func (Protocol) Routes() []string { return []string{"POST /v1/responses"} }

// Asides are the requests that are answered without an engine. A harness that
// would rather have a WebSocket goes on without one when it is told so.
func (Protocol) Asides() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /v1/responses": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Upgrade", "HTTP/1.1")
			e := llm.Errorf(llm.BadRequest, "responses are made with POST /v1/responses and streamed as server-sent events; there is no WebSocket here")
			e.Status = http.StatusUpgradeRequired
			openai.Fail(w, e)
		},
	}
}

// CountRoutes are where a harness asks how long a prompt is.
func (Protocol) CountRoutes() []string { return []string{"POST /v1/responses/input_tokens"} }

// DecodeCount reads a question of how long a prompt is: it is the call itself.
func (p Protocol) DecodeCount(r *http.Request, body []byte) (llm.Request, error) {
	return p.Decode(r, body)
}

// Count answers how long a prompt is.
func (Protocol) Count(w http.ResponseWriter, _ llm.Request, tokens int) {
	b := strconv.AppendInt([]byte(`{"object":"response.input_tokens","input_tokens":`), int64(tokens), 10)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '}')) // who is gone needs no number
}

// Fail writes err as a whole response, as OpenAI would say it.
func (Protocol) Fail(w http.ResponseWriter, err *llm.Error) { openai.Fail(w, err) }

// asked is what an answer needs to know of its request.
type asked struct {
	model string
	// echo holds the settings that a response repeats.
	echo rawjson.Object
	// tools has what the functions of the model are to the harness.
	tools map[string]tool
	// ignored are the types of the tools that nobody here can run.
	ignored []string
	// encrypted is whether the harness wants reasoning in the form that it
	// gives back.
	encrypted bool
	logprobs  bool
}

const responsePrefix = "resp_"

// newBase makes the part that the ids of an answer share where the gateway gave
// none.
func newBase() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// itemID names an item so that it is known when it comes back: what kind it is,
// which answer it was part of, and its place there.
func itemID(prefix, base string, index int) string {
	return prefix + "_" + base + "_" + strconv.Itoa(index)
}

// answerOf is the answer that an item with this id was part of, or "".
func answerOf(id string) string {
	_, rest, ok := strings.Cut(id, "_")
	end := strings.LastIndexByte(rest, '_')
	if !ok || end <= 0 {
		return ""
	}
	if _, err := strconv.Atoi(rest[end+1:]); err != nil {
		return ""
	}
	return rest[:end]
}
