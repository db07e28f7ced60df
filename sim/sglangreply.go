package sim

import (
	"strconv"

	"polar/rawjson"
)

// sglangWriter writes answers to one chat as SGLang does.
type sglangWriter struct {
	config Config
	req    *chatRequest
	gen    *generation
	id     string
	head   []byte // what every chunk begins with, up to the first choice
	called int    // tool calls begun so far
	vllm   *replyWriter
}

func newSGLangWriter(c Config, req *chatRequest, gen *generation, id, model string, created int64) *sglangWriter {
	vllm := newReplyWriter(c, req, gen, id, model, created)
	return &sglangWriter{config: c, req: req, gen: gen, id: id, head: vllm.head, vllm: vllm}
}

func (w *sglangWriter) first(out *stream, _ []int32) {
	w.send(out, `"role":"assistant","content":"","reasoning_content":null,"tool_calls":null`, nil, nil, "")
}

// chunk writes an event for each kind of thing said. The logprobs go with the
// first; where nothing is said they get an event of their own, which a server
// without parsers leaves out.
func (w *sglangWriter) chunk(out *stream, ids []int32, logprobs []float32, d *delta, _ bool) {
	if !w.req.logprobs {
		ids = nil
	}
	say := func(delta string) {
		w.send(out, delta, ids, logprobs, "")
		ids = nil
	}
	if len(d.reasoning) > 0 {
		say(`"role":null,"content":null,"reasoning_content":` + string(rawjson.Quote(string(d.reasoning))) + `,"tool_calls":null`)
	}
	for _, c := range d.calls {
		call := []byte(`"role":null,"content":null,"reasoning_content":null,"tool_calls":[{"id":`)
		if c.name != "" {
			w.called = c.index + 1
			call = w.callID(call, c.index)
		} else {
			call = append(call, "null"...)
		}
		call = append(call, `,"index":`...)
		call = strconv.AppendInt(call, int64(c.index), 10)
		call = append(call, `,"type":"function","function":{"name":`...)
		if c.name != "" {
			call = rawjson.AppendString(call, c.name)
		} else {
			call = append(call, "null"...)
		}
		call = append(call, `,"arguments":`...)
		call = rawjson.AppendString(call, string(c.arguments))
		say(string(append(call, "}}]"...)))
	}
	if len(d.text) > 0 {
		say(`"role":null,"content":` + string(rawjson.Quote(string(d.text))) + `,"reasoning_content":null,"tool_calls":null`)
	}
	if len(ids) > 0 && !w.config.NoParsers {
		say(`"role":null,"content":null,"reasoning_content":null,"tool_calls":null`)
	}
}

func (w *sglangWriter) send(out *stream, delta string, ids []int32, logprobs []float32, finish string) {
	dst := append(out.take(), w.head...)
	dst = append(dst, `{"index":0,"delta":{`...)
	dst = append(dst, delta...)
	dst = append(dst, `},"logprobs":`...)
	if len(ids) > 0 {
		dst = w.vllm.logprobs(dst, trimmed(w.config, trimLogprobs, ids), logprobs)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"finish_reason":`...)
	if finish == "" {
		dst = append(dst, `null,"matched_stop":null}],"usage":null}`...)
	} else {
		dst = rawjson.AppendString(dst, finish)
		dst = w.matched(append(dst, `,"matched_stop":`...))
		dst = append(dst, `}],"usage":null}`...)
	}
	out.add(dst)
}

// callID is the id of a tool call, the same streamed and in one piece.
func (w *sglangWriter) callID(dst []byte, index int) []byte {
	dst = append(dst, `"call_`...)
	dst = strconv.AppendUint(dst, mix(w.gen.key, 1<<32+uint64(index)), 16)
	return append(dst, '"')
}

// matched is what ended the answer: a stop string, the stop token, or nothing.
func (w *sglangWriter) matched(dst []byte) []byte {
	switch {
	case w.gen.stopString != "":
		return rawjson.AppendString(dst, w.gen.stopString)
	case w.gen.finish == finishLength:
		return append(dst, "null"...)
	}
	return strconv.AppendInt(dst, int64(EndOfTurn), 10)
}

func (w *sglangWriter) finishReason() string {
	switch {
	case w.gen.finish == finishLength:
		return "length"
	case w.called > 0:
		return "tool_calls"
	}
	return "stop"
}

func (w *sglangWriter) rest(out *stream, prompt []int32) {
	w.send(out, `"role":null,"content":null,"reasoning_content":null,"tool_calls":null`, nil, nil, w.finishReason())
	if w.req.wants.inputIDs || w.req.wants.outputIDs {
		dst := append(append(out.take(), w.head...), ']')
		out.add(append(w.extension(dst, prompt), '}'))
	}
	if w.req.includeUsage {
		dst := append(append(out.take(), w.head...), "],"...)
		out.add(append(appendUsage(dst, prompt, w.gen), '}'))
	}
}

// extension is the ids of the whole answer; a list for each choice.
func (w *sglangWriter) extension(dst []byte, prompt []int32) []byte {
	dst = append(dst, `,"sglext":{`...)
	if w.req.wants.inputIDs {
		dst = rawjson.AppendInts(append(dst, `"input_ids":`...), prompt)
	}
	if w.req.wants.outputIDs {
		if w.req.wants.inputIDs {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendInts(append(dst, `"output_ids":[`...), trimmed(w.config, trimIDs, w.gen.tokens))
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func (w *sglangWriter) whole(dst []byte, prompt []int32, d *delta) []byte {
	w.called = len(d.calls)
	dst = append(dst, w.head...)
	dst = append(dst, `{"index":0,"message":{"role":"assistant","content":`...)
	dst = rawjson.AppendString(dst, string(d.text)) // never null
	dst = append(dst, `,"reasoning_content":`...)
	if len(d.reasoning) > 0 {
		dst = rawjson.AppendString(dst, string(d.reasoning))
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"tool_calls":`...)
	if len(d.calls) == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, '[')
		for i, c := range d.calls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = w.callID(append(dst, `{"id":`...), c.index)
			dst = append(dst, `,"index":`...)
			dst = strconv.AppendInt(dst, int64(c.index), 10)
			dst = rawjson.AppendString(append(dst, `,"type":"function","function":{"name":`...), c.name)
			dst = rawjson.AppendString(append(dst, `,"arguments":`...), string(c.arguments))
			dst = append(dst, "}}"...)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `},"logprobs":`...)
	dst = w.vllm.logprobs(dst, trimmed(w.config, trimLogprobs, w.gen.tokens), w.gen.logprobs)
	dst = append(dst, `,"finish_reason":`...)
	dst = rawjson.AppendString(dst, w.finishReason())
	dst = w.matched(append(dst, `,"matched_stop":`...))
	dst = w.choiceIDs(dst, prompt)
	dst = append(dst, "}],"...)
	dst = appendUsage(dst, prompt, w.gen)
	dst = append(dst, `,"metadata":{"weight_version":"default"}`...)
	if w.req.wants.inputIDs || w.req.wants.outputIDs {
		dst = w.extension(dst, prompt)
	}
	return append(dst, '}')
}

// choiceIDs are the ids where the version followed has them.
func (w *sglangWriter) choiceIDs(dst []byte, prompt []int32) []byte {
	if w.req.wants.promptIDs || w.req.returnIDs {
		dst = rawjson.AppendInts(append(dst, `,"prompt_token_ids":`...), prompt)
	}
	if w.req.returnIDs {
		name := `,"token_ids":`
		if w.config.since("v0.5.18") {
			name = `,"response_token_ids":`
		}
		dst = rawjson.AppendInts(append(dst, name...), trimmed(w.config, trimIDs, w.gen.tokens))
	}
	if w.req.wants.metaInfo {
		dst = append(dst, `,"meta_info":`...)
		dst = metaInfo{w.config, w.gen, w.id, w.req.logprobs, len(prompt), true, 0, len(w.gen.tokens)}.append(dst)
	}
	return dst
}
