package sim

import (
	"strconv"

	"polar/rawjson"
)

// metaInfo is SGLang's account of an answer, or of the tokens of it from one
// place to another.
type metaInfo struct {
	config   Config
	gen      *generation
	id       string
	logprobs bool
	prompt   int // tokens
	ended    bool
	from, to int
}

func (m metaInfo) append(dst []byte) []byte {
	dst = rawjson.AppendString(append(dst, `{"id":`...), m.id)
	dst = append(dst, `,"finish_reason":`...)
	switch {
	case !m.ended:
		dst = append(dst, "null"...)
	case m.gen.finish == finishLength:
		dst = append(dst, `{"type":"length","length":`...)
		dst = append(strconv.AppendInt(dst, int64(len(m.gen.tokens)), 10), '}')
	case m.gen.stopString != "":
		dst = append(rawjson.AppendString(append(dst, `{"type":"stop","matched":`...), m.gen.stopString), '}')
	default:
		dst = append(dst, `{"type":"stop","matched":`...)
		dst = append(strconv.AppendInt(dst, int64(EndOfTurn), 10), '}')
	}
	dst = append(dst, `,"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(m.gen.promptTokens(m.prompt)), 10)
	dst = append(dst, `,"weight_version":"default","completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(m.to), 10)
	dst = append(dst, `,"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(max(m.gen.cached, 0)), 10)
	if m.logprobs {
		ids := trimmed(m.config, trimLogprobs, m.gen.tokens[m.from:m.to])
		dst = append(dst, `,"output_token_logprobs":[`...)
		for i, id := range ids {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.pair(dst, id, m.gen.logprobs[m.from+i])
		}
		dst = append(dst, `],"output_token_logprobs_length":`...)
		dst = strconv.AppendInt(dst, int64(m.from+len(ids)), 10)
	}
	return append(dst, `,"e2e_latency":0.25}`...)
}

// pair is a sampled token; a logprob that is not known is null.
func (m metaInfo) pair(dst []byte, id int32, logprob float32) []byte {
	dst = append(dst, '[')
	if logprob == missingLogprob {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendFloat(dst, float64(logprob), 'g', -1, 64)
	}
	dst = append(dst, ',')
	dst = strconv.AppendInt(dst, int64(id), 10)
	return append(dst, ",null]"...)
}
