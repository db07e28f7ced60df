// Package anthropic speaks Anthropic's Messages to harnesses.
//
// What a request says is kept in its order and its bytes: a conversation that
// only grows stays one prompt that only grows. Noise that differs from turn to
// turn is taken out: cache_control everywhere, the billing line that Claude Code
// puts before its system prompt, and whether one text is a string or a block.
//
// Where Messages and Chat differ in kind:
//   - The texts of an assistant turn are one text, as they were when the model
//     wrote them; all other lists of blocks stay lists.
//   - The images of a tool's result stay where they are, as parts of the tool's
//     message. A result that is an error begins with "[Tool Error]".
//   - The signature of a thinking block carries the text itself, so that it comes
//     back as the model wrote it even if the harness showed or kept none of it.
//     Thinking that another provider signed is read from its text, and what was
//     redacted is left out.
//   - A tool with defer_loading is shown where a tool_reference names it, which
//     leaves what stands before untouched, and not at the top of the prompt.
//   - A document that is no text is replaced by a line that says so.
package anthropic

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"

	"polar/llm"
	"polar/rawjson"
)

// Protocol is the wire format. It has no state.
type Protocol struct{}

// Wire is the format's name in records.
func (Protocol) Wire() string { return "anthropic" }

// Routes are where model calls come in.
func (Protocol) Routes() []string { return []string{"POST /v1/messages"} }

// CountRoutes are where a harness asks how many tokens a call would have.
func (Protocol) CountRoutes() []string { return []string{"POST /v1/messages/count_tokens"} }

// DecodeCount reads the call whose tokens are to be counted.
func (Protocol) DecodeCount(_ *http.Request, body []byte) (llm.Request, error) { return decode(body) }

// Count answers how many tokens a call would have.
func (Protocol) Count(w http.ResponseWriter, _ llm.Request, tokens int) {
	b := strconv.AppendInt([]byte(`{"input_tokens":`), int64(tokens), 10)
	_ = writeWhole(w, append(b, '}')) // a client that is gone needs no count
}

// Asides are what harnesses ask to see whether somebody is there.
func (Protocol) Asides() map[string]http.HandlerFunc {
	there := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	return map[string]http.HandlerFunc{"GET /api/hello": there, "HEAD /v1/messages": there}
}

// asked is what an answer needs to know of its request.
type asked struct {
	model string
	// hidden says that thinking goes out as its signature alone.
	hidden bool
}

// answer is what all parts of one answer have in common.
type answer struct {
	asked
	id string // the part that the ids in the answer share
}

func newAnswer(req llm.Request) answer {
	a, ok := req.Reply.(asked)
	if !ok {
		a.model = req.Model
	}
	id := req.ID
	if id == "" {
		var random [12]byte
		_, _ = rand.Read(random[:]) // never fails
		id = hex.EncodeToString(random[:])
	}
	return answer{asked: a, id: id}
}

// toolID is the id of a tool call: the engine's own, if it gave one.
func (a answer) toolID(call llm.ToolCall, index int) string {
	if call.ID != "" {
		return call.ID
	}
	return "toolu_" + a.id + "_" + strconv.Itoa(index)
}

// appendMessage writes the message object of an answer up to its content's end.
func (a answer) appendMessage(dst, content []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, "msg_"+a.id)
	dst = append(dst, `,"type":"message","role":"assistant","model":`...)
	dst = rawjson.AppendString(dst, a.model)
	dst = append(dst, `,"content":[`...)
	dst = append(dst, content...)
	return append(dst, ']')
}
