package sim

import (
	"net/http"

	"polar/rawjson"
)

// generate is a call of SGLang's /generate.
func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	s.call(w, r, "generate-sim-", func(body []byte) (*chatRequest, []int32, error) {
		req, prompt, err := decodeGenerate(body)
		if err != nil {
			return nil, nil, asRefusal(err)
		}
		req.model = s.config.Model
		req.conversation = s.generator.template.read(prompt)
		return req, prompt, nil
	})
}

func decodeGenerate(body []byte) (*chatRequest, []int32, error) {
	if err := rawjson.Valid(body); err != nil {
		return nil, nil, err
	}
	req := &chatRequest{continues: true, raw: true}
	req.maxTokens = 128 // as it is where nobody says
	var prompt []int32
	err := rawjson.EachMember(body, func(key string, value []byte) (err error) {
		if rawjson.IsNull(value) {
			return nil
		}
		switch key {
		case "input_ids":
			prompt, err = rawjson.Ints(nil, value)
		case "text":
			var text string
			text, err = rawjson.String(value)
			prompt = EncodeSpecial(nil, text)
		case "stream":
			req.stream, err = boolean(value)
		case "return_logprob":
			req.logprobs, err = boolean(value)
		case "return_prompt_token_ids":
			req.wants.promptIDs, err = boolean(value)
		case "sampling_params":
			err = req.samplingParams(value)
		}
		if err != nil {
			return badRequest(key, "%s: %v", key, err)
		}
		return nil
	})
	if err == nil && len(prompt) == 0 {
		err = badRequest("", "Either text, input_ids or input_embeds should be provided.")
	}
	return req, prompt, err
}

func (req *chatRequest) samplingParams(object []byte) error {
	req.special = false
	return rawjson.EachMember(object, func(key string, value []byte) (err error) {
		switch {
		case key == "max_new_tokens" && rawjson.IsNull(value):
			req.maxTokens = 0 // as long as the context is
			return nil
		case rawjson.IsNull(value):
			return nil
		}
		switch key {
		case "max_new_tokens":
			if req.maxTokens, err = rawjson.Int(value); err == nil && req.maxTokens < 1 {
				err = badRequest("", "max_new_tokens must be at least 1, got %d.", req.maxTokens)
			}
		case "skip_special_tokens":
			req.special, err = not(boolean(value))
		case "sampling_seed":
			err = req.sampling("seed", value)
		case "no_stop_trim":
			err = req.sampling("include_stop_str_in_output", value)
		default:
			err = req.sampling(key, value)
		}
		return err
	})
}

// continuationWriter writes answers of /generate.
type continuationWriter struct {
	config Config
	req    *chatRequest
	gen    *generation
	id     string
	prompt int    // tokens
	text   []byte // so far
	sent   int    // tokens so far
}

func (w *continuationWriter) first(_ *stream, prompt []int32) { w.prompt = len(prompt) }

func (w *continuationWriter) rest(*stream, []int32) {}

// chunk sends everything so far, or with incremental streaming what is new.
func (w *continuationWriter) chunk(out *stream, ids []int32, _ []float32, d *delta, last bool) {
	from := 0
	w.text = append(w.text, d.text...)
	text := w.text
	if w.config.IncrementalStreaming {
		from, text = w.sent, d.text
	}
	w.sent += len(ids)
	out.add(w.append(out.take(), text, from, w.sent, last))
}

func (w *continuationWriter) whole(dst []byte, prompt []int32, d *delta) []byte {
	w.prompt = len(prompt)
	dst = w.append(dst, d.text, 0, len(w.gen.tokens), true)
	if w.req.wants.promptIDs {
		dst = rawjson.AppendInts(append(dst[:len(dst)-1], `,"prompt_token_ids":`...), prompt)
		dst = append(dst, '}')
	}
	return dst
}

func (w *continuationWriter) append(dst, text []byte, from, to int, last bool) []byte {
	ids := w.gen.tokens[from:to]
	dst = rawjson.AppendString(append(dst, `{"text":`...), string(text))
	dst = rawjson.AppendInts(append(dst, `,"output_ids":`...), trimmed(w.config, trimIDs, ids))
	dst = append(dst, `,"meta_info":`...)
	dst = metaInfo{w.config, w.gen, w.id, w.req.logprobs, w.prompt, last, from, to}.append(dst)
	return append(dst, '}')
}
