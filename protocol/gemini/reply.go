package gemini

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// Reply writes the answer to a request that Decode made. A nil error means that
// all of it was handed to the connection.
func (p Protocol) Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error {
	a := newAnswer(req)
	if req.Stream {
		return newStream(w, a).write(events)
	}
	reply, err := llm.Collect(events)
	if err != nil {
		p.Fail(w, asError(err))
		return err
	}
	body := a.whole(reply)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return err
	}
	// Without it a connection that broke would not be noticed.
	return http.NewResponseController(w).Flush()
}

// answer makes the chunks of one answer. One that is not streamed is one chunk.
type answer struct {
	asked
	id string
	// reasoning is all of it so far, and signed how much of it the latest
	// signature holds.
	reasoning []byte
	signed    int
	calls     llm.Collector
	usage     llm.Usage
	// probabilities are the logprobs that no chunk has shown yet.
	probabilities []json.RawMessage
}

func newAnswer(req llm.Request) *answer {
	a := &answer{id: req.ID}
	var ok bool
	if a.asked, ok = req.Reply.(asked); !ok {
		a.model = req.Model
	}
	if a.id == "" {
		var random [12]byte
		_, _ = rand.Read(random[:]) // never fails
		a.id = hex.EncodeToString(random[:])
	}
	return a
}

// whole is an answer that is not streamed.
func (a *answer) whole(reply llm.Reply) []byte {
	deltas := make([]llm.ToolCallDelta, 0, len(reply.Message.ToolCalls))
	for i, c := range reply.Message.ToolCalls {
		deltas = append(deltas, llm.ToolCallDelta{Index: i, ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	e := llm.Event{
		PromptIDs: reply.PromptIDs, Tokens: reply.Tokens, ToolCalls: deltas,
		Text: reply.Message.Text(), Reasoning: reply.Message.Reasoning, Finish: reply.Finish,
	}
	if reply.Usage != (llm.Usage{}) {
		e.Usage = &reply.Usage
	}
	a.take(e)
	a.probabilities = reply.Logprobs
	return a.appendChunk(nil, e)
}

// take notes what an event has that its chunk may not show.
func (a *answer) take(e llm.Event) {
	a.reasoning = append(a.reasoning, e.Reasoning...)
	a.calls.Add(llm.Event{ToolCalls: e.ToolCalls})
	if e.Logprobs != nil && a.logprobs {
		a.probabilities = append(a.probabilities, e.Logprobs)
	}
	if e.PromptIDs != nil {
		a.usage.PromptTokens = len(e.PromptIDs)
	}
	a.usage.CompletionTokens += len(e.Tokens)
	if e.Usage != nil {
		a.usage = *e.Usage
	}
}

// appendChunk writes a chunk of what e shows. The one that ends the answer has
// the calls of functions too: only then are their arguments known to be whole.
func (a *answer) appendChunk(dst []byte, e llm.Event) []byte {
	dst = append(dst, `{"candidates":[{"content":{"role":"model","parts":[`...)
	from := len(dst)
	if e.Reasoning != "" && a.thoughts {
		dst = append(dst, `{"thought":true,"text":`...)
		dst = append(rawjson.AppendString(dst, e.Reasoning), '}', ',')
	}
	if e.Text != "" {
		dst = append(dst, `{"text":`...)
		dst = rawjson.AppendString(dst, e.Text)
		if len(a.reasoning) > a.signed {
			dst = a.appendSignature(dst)
		}
		dst = append(dst, '}', ',')
	}
	malformed := ""
	if e.Finish != "" {
		dst, malformed = a.appendCalls(dst)
	}
	if len(dst) == from {
		dst = append(dst, `{"text":""},`...) // a content without parts is not valid for clients
	}
	dst = append(dst[:len(dst)-1], "]}"...)
	if e.Finish != "" {
		dst = appendFinish(dst, e.Finish, malformed)
	}
	dst = append(dst, `,"index":0`...)
	if a.logprobs && len(a.probabilities) > 0 {
		dst = appendLogprobs(append(dst, `,"logprobsResult":`...), a.probabilities)
		a.probabilities = nil
	}
	return a.appendTail(append(dst, "}]"...))
}

// appendTail writes the members that every chunk ends with.
func (a *answer) appendTail(dst []byte) []byte {
	if u := a.usage; u.PromptTokens > 0 {
		dst = append(dst, `,"usageMetadata":{"promptTokenCount":`...)
		dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
		if u.CachedTokens > 0 {
			dst = append(dst, `,"cachedContentTokenCount":`...)
			dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
		}
		dst = append(dst, `,"candidatesTokenCount":`...)
		dst = strconv.AppendInt(dst, int64(u.CompletionTokens), 10)
		dst = append(dst, `,"totalTokenCount":`...)
		dst = strconv.AppendInt(dst, int64(u.PromptTokens+u.CompletionTokens), 10)
		dst = append(dst, '}')
	}
	dst = append(dst, `,"modelVersion":`...)
	dst = rawjson.AppendString(dst, a.model)
	dst = append(dst, `,"responseId":`...)
	dst = rawjson.AppendString(dst, a.id)
	return append(dst, '}')
}

func (a *answer) appendSignature(dst []byte) []byte {
	a.signed = len(a.reasoning)
	dst = append(dst, `,"thoughtSignature":"`...)
	return append(append(dst, signature(a.reasoning)...), '"')
}

// appendCalls writes the calls of functions as parts. It leaves out a call with
// arguments that are none, and returns what the harness is told of it. The first
// call has all of the reasoning with it, in case the text before it lost its own.
func (a *answer) appendCalls(dst []byte) (_ []byte, malformed string) {
	signed := len(a.reasoning) == 0
	for _, c := range a.calls.Reply().Message.ToolCalls {
		args, ok := arguments(c.Arguments)
		if !ok {
			malformed = "Malformed function call: " + c.Name + "(" + c.Arguments + ")"
			continue
		}
		dst = append(dst, `{"functionCall":{`...)
		if c.ID != "" {
			dst = append(dst, `"id":`...)
			dst = append(rawjson.AppendString(dst, c.ID), ',')
		}
		dst = append(dst, `"name":`...)
		dst = rawjson.AppendString(dst, c.Name)
		dst = append(dst, `,"args":`...)
		dst = append(append(dst, args...), '}')
		if !signed {
			dst = a.appendSignature(dst)
			signed = true
		}
		dst = append(dst, '}', ',')
	}
	return dst, malformed
}

// arguments are those of a call as the object that the format has, byte for byte
// but for line ends between its tokens: clients take a chunk to be one line. A
// model that writes nothing means a function without parameters.
func arguments(text string) ([]byte, bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return []byte("{}"), true
	}
	args := []byte(text)
	if args[0] != '{' || rawjson.Valid(args) != nil {
		return nil, false
	}
	for i, c := range args {
		if c == '\n' || c == '\r' {
			args[i] = ' '
		}
	}
	return args, true
}

// appendFinish writes why the answer ended. A call that was cut off with the
// answer is no fault of its own.
func appendFinish(dst []byte, finish, malformed string) []byte {
	reason := "OTHER"
	switch finish {
	case llm.FinishStop, llm.FinishToolCalls:
		reason = "STOP"
	case llm.FinishLength:
		reason = "MAX_TOKENS"
	case llm.FinishFilter:
		reason = "SAFETY"
	}
	if malformed != "" && reason == "STOP" {
		reason = "MALFORMED_FUNCTION_CALL"
	}
	dst = append(dst, `,"finishReason":"`+reason+`"`...)
	if malformed != "" {
		dst = rawjson.AppendString(append(dst, `,"finishMessage":`...), malformed)
	}
	return dst
}
