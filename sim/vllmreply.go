package sim

import (
	"slices"
	"strconv"

	"polar/rawjson"
)

// replyWriter writes answers to one request as vLLM does. It appends to
// buffers by hand: this is the load engine of the benchmarks too.
type replyWriter struct {
	config  Config
	req     *chatRequest
	gen     *generation
	head    []byte // what every chunk begins with, up to the choice's delta
	scratch []byte
	called  int // tool calls begun so far
}

func newReplyWriter(c Config, req *chatRequest, gen *generation, id, model string, created int64) *replyWriter {
	w := &replyWriter{config: c, req: req, gen: gen}
	b := append(w.head, `{"id":`...)
	b = rawjson.AppendString(b, id)
	b = append(b, `,"object":"chat.completion`...)
	if req.stream {
		b = append(b, ".chunk"...)
	}
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, created, 10)
	b = append(b, `,"model":`...)
	b = rawjson.AppendString(b, model)
	w.head = append(b, `,"choices":[`...)
	return w
}

// first is the chunk with the role, and alone the one with the prompt's ids.
func (w *replyWriter) first(out *stream, prompt []int32) {
	dst := out.take()
	if w.req.returnIDs {
		dst = slices.Grow(dst, len(w.head)+8*len(prompt)+256)
	}
	dst = append(dst, w.head...)
	dst = append(dst, `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	if w.req.returnIDs {
		dst = append(dst, `,"prompt_token_ids":`...)
		dst = rawjson.AppendInts(dst, prompt)
	}
	out.add(append(dst, '}'))
}

// chunk is what came since the chunk before. It is sent even if the parsers
// made nothing of it, since its ids and logprobs count.
func (w *replyWriter) chunk(out *stream, ids []int32, logprobs []float32, d *delta, last bool) {
	dst := append(out.take(), w.head...)
	dst = append(dst, `{"index":0,"delta":{`...)
	comma := len(dst)
	if len(d.reasoning) > 0 && !w.req.hideReasoning {
		dst = append(dst, `,"reasoning":`...)
		dst = rawjson.AppendString(dst, string(d.reasoning))
	}
	if len(d.text) > 0 {
		dst = append(dst, `,"content":`...)
		dst = rawjson.AppendString(dst, string(d.text))
	}
	if len(d.calls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for i, c := range d.calls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = w.callDelta(dst, c)
		}
		dst = append(dst, ']')
	}
	if len(dst) > comma {
		dst = append(dst[:comma], dst[comma+1:]...)
	}
	dst = append(dst, '}')
	dst = w.choiceTail(dst, ids, logprobs, last)
	out.add(append(dst, "}]}"...))
}

func (w *replyWriter) callDelta(dst []byte, c callDelta) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(c.index), 10)
	if c.name != "" {
		w.called = c.index + 1
		dst = append(dst, `,"id":`...)
		dst = w.callID(dst, c.index)
		dst = append(dst, `,"type":"function","function":{"name":`...)
		dst = rawjson.AppendString(dst, c.name)
		dst = append(dst, ',')
	} else {
		dst = append(dst, `,"function":{`...)
	}
	dst = append(dst, `"arguments":`...)
	dst = rawjson.AppendString(dst, string(c.arguments))
	return append(dst, "}}"...)
}

func (w *replyWriter) callID(dst []byte, index int) []byte {
	dst = append(dst, `"chatcmpl-tool-`...)
	dst = strconv.AppendUint(dst, mix(w.gen.key, 1<<32+uint64(index)), 16)
	return append(dst, '"')
}

// choiceTail writes what follows the delta or the message within a choice.
func (w *replyWriter) choiceTail(dst []byte, ids []int32, logprobs []float32, last bool) []byte {
	dst = append(dst, `,"logprobs":`...)
	dst = w.logprobs(dst, trimmed(w.config, trimLogprobs, ids), logprobs)
	dst = append(dst, `,"finish_reason":`...)
	if last {
		dst = rawjson.AppendString(dst, w.finishReason())
		dst = append(dst, `,"stop_reason":`...)
		if w.gen.stopString == "" {
			dst = append(dst, "null"...)
		} else {
			dst = rawjson.AppendString(dst, w.gen.stopString)
		}
	} else {
		dst = append(dst, "null"...)
	}
	if w.req.returnIDs {
		dst = append(dst, `,"token_ids":`...)
		dst = rawjson.AppendInts(dst, trimmed(w.config, trimIDs, ids))
	}
	return dst
}

// trimmed is ids without the stop token, where the configuration says so of
// this list.
func trimmed(c Config, list string, ids []int32) []int32 {
	if n := len(ids); c.TrimStop == list && n > 0 && ids[n-1] == EndOfTurn {
		return ids[:n-1]
	}
	return ids
}

func (w *replyWriter) finishReason() string {
	switch {
	case w.gen.finish == finishLength:
		return "length"
	case w.called > 0:
		return "tool_calls"
	}
	return "stop"
}

// rest is the chunk with the usage, for who asked.
func (w *replyWriter) rest(out *stream, prompt []int32) {
	if !w.req.includeUsage {
		return
	}
	dst := append(out.take(), w.head...)
	dst = append(dst, "],"...)
	out.add(append(appendUsage(dst, prompt, w.gen), '}'))
}

// promptTokens is what is reported as the length of the prompt.
func (g *generation) promptTokens(counted int) int {
	if n := g.usage.PromptTokens; n > 0 {
		return n
	}
	return counted
}

func appendUsage(dst []byte, prompt []int32, gen *generation) []byte {
	counted := gen.promptTokens(len(prompt))
	dst = append(dst, `"usage":{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(counted), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(counted+len(gen.tokens)), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(len(gen.tokens)), 10)
	if gen.cached >= 0 {
		dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
		dst = strconv.AppendInt(dst, int64(gen.cached), 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// whole is the answer to a request that did not ask for a stream. The calls of
// d are complete.
func (w *replyWriter) whole(dst []byte, prompt []int32, d *delta) []byte {
	w.called = len(d.calls)
	dst = append(dst, w.head...)
	dst = append(dst, `{"index":0,"message":{"role":"assistant","content":`...)
	if len(d.text) == 0 && len(d.calls) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = rawjson.AppendString(dst, string(d.text))
	}
	if len(d.reasoning) > 0 && !w.req.hideReasoning {
		dst = append(dst, `,"reasoning":`...)
		dst = rawjson.AppendString(dst, string(d.reasoning))
	}
	dst = append(dst, `,"tool_calls":[`...)
	for i, c := range d.calls {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"id":`...)
		dst = w.callID(dst, c.index)
		dst = append(dst, `,"type":"function","function":{"name":`...)
		dst = rawjson.AppendString(dst, c.name)
		dst = append(dst, `,"arguments":`...)
		dst = rawjson.AppendString(dst, string(c.arguments))
		dst = append(dst, "}}"...)
	}
	dst = append(dst, "]}"...)
	dst = w.choiceTail(dst, w.gen.tokens, w.gen.logprobs, true)
	dst = append(dst, "}],"...)
	dst = appendUsage(dst, prompt, w.gen)
	dst = append(dst, `,"prompt_logprobs":null`...)
	if w.req.returnIDs {
		dst = append(dst, `,"prompt_token_ids":`...)
		dst = rawjson.AppendInts(dst, prompt)
	}
	return append(dst, '}')
}

// logprobs writes the logprobs object, or null. An explicit null for
// top_logprobs leaves its content out, as in vLLM.
func (w *replyWriter) logprobs(dst []byte, ids []int32, logprobs []float32) []byte {
	if !w.req.logprobs {
		return append(dst, "null"...)
	}
	if w.req.topNull {
		return append(dst, `{"content":null}`...)
	}
	dst = append(dst, `{"content":[`...)
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = w.entry(dst, id, logprobs[i])
		dst = append(dst, `,"top_logprobs":[`...)
		other, lp := id, logprobs[i]
		for n := range w.req.topLogprobs {
			if n > 0 {
				dst = append(dst, ',')
				// Neighbours in the vocabulary play the tokens that were not drawn.
				other, lp = (id+int32(n))%vocabSize, lp-0.5
			}
			dst = append(w.entry(dst, other, lp), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, "]}"...)
}

// entry writes a token with its logprob and leaves the object open.
func (w *replyWriter) entry(dst []byte, id int32, logprob float32) []byte {
	w.scratch = appendToken(w.scratch[:0], id)
	dst = append(dst, `{"token":`...)
	if w.req.tokensAsIDs {
		dst = append(dst, `"token_id:`...)
		dst = strconv.AppendInt(dst, int64(id), 10)
		dst = append(dst, '"')
	} else {
		dst = rawjson.AppendString(dst, string(w.scratch))
	}
	dst = append(dst, `,"logprob":`...)
	dst = strconv.AppendFloat(dst, float64(logprob), 'g', -1, 64)
	dst = append(dst, `,"bytes":[`...)
	for i, c := range w.scratch {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return append(dst, ']')
}
