package chat

import (
	"encoding/json"
	"iter"
	"net/http"
	"strconv"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// Reply writes the answer to a request that Decode made. A nil error means that
// all of it was handed to the connection.
func (p Protocol) Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error {
	if req.ID != "" {
		// OpenAI's clients keep it with an error; some go on after a stream that
		// broke off only if there is one.
		w.Header().Set("X-Request-Id", "req_"+req.ID)
	}
	if req.Stream {
		return newStream(w, req).write(events)
	}
	reply, err := llm.Collect(events)
	if err != nil {
		p.Fail(w, openai.AsError(err))
		return err
	}
	return writeWhole(w, newAnswer(req).appendWhole(nil, reply))
}

func writeWhole(w http.ResponseWriter, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return err
	}
	// Without it a connection that broke would not be noticed.
	return http.NewResponseController(w).Flush()
}

// appendHead writes the members that every part of an answer begins with.
func (a answer) appendHead(dst []byte, object string) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, a.id)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, a.created, 10)
	dst = append(dst, `,"model":`...)
	return rawjson.AppendString(dst, a.model)
}

// appendWhole writes an unstreamed answer.
func (a answer) appendWhole(dst []byte, reply llm.Reply) []byte {
	dst = a.appendHead(dst, "chat.completion")
	dst = append(dst, `,"choices":[{"index":0,"message":`...)
	dst = reply.Message.AppendJSON(dst, "reasoning_content")
	dst = append(dst, `,"logprobs":`...)
	if a.logprobs {
		dst = appendLogprobs(dst, reply.Logprobs)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"finish_reason":`...)
	dst = rawjson.AppendString(dst, reply.Finish)
	dst = append(dst, `}],"usage":`...)
	return append(appendUsage(dst, reply.Usage), '}')
}

// appendLogprobs joins the content of the logprobs objects of all events.
func appendLogprobs(dst []byte, parts []json.RawMessage) []byte {
	dst = append(dst, `{"content":[`...)
	first := true
	for _, part := range parts {
		o, err := rawjson.ParseObject(part)
		if err != nil || rawjson.IsNull(o.Get("content")) {
			continue
		}
		_ = rawjson.EachElement(o.Get("content"), func(entry []byte) error { // well-formed: it was parsed
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(dst, entry...)
			return nil
		})
	}
	return append(dst, "]}"...)
}

// appendUsage writes the counts with all their details, which some harnesses
// take for granted. How much of an answer was reasoning is not known.
func appendUsage(dst []byte, u llm.Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CompletionTokens), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens+u.CompletionTokens), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
	return append(dst, `},"completion_tokens_details":{"reasoning_tokens":0}}`...)
}
