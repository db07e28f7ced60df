package gemini

import (
	"encoding/json"

	"polar/rawjson"
)

// appendLogprobs writes Chat's logprobs objects as one logprobsResult.
func appendLogprobs(dst []byte, parts []json.RawMessage) []byte {
	chosen, top := []byte(`"chosenCandidates":[`), []byte(`"topCandidates":[`)
	for _, part := range parts {
		o, err := rawjson.ParseObject(part)
		if err != nil || rawjson.IsNull(o.Get("content")) {
			continue
		}
		_ = rawjson.EachElement(o.Get("content"), func(entry []byte) error { // well-formed: it was parsed
			token, err := rawjson.ParseObject(entry)
			if err != nil {
				return err
			}
			chosen = append(appendCandidate(chosen, token), ',')
			if others := token.Get("top_logprobs"); !rawjson.IsNull(others) {
				top = append(top, `{"candidates":[`...)
				top = append(appendCandidates(top, others), "]},"...)
			}
			return nil
		})
	}
	dst = append(closeList(append(append(dst, '{'), top...)), ',')
	return append(closeList(append(dst, chosen...)), '}')
}

func appendCandidates(dst, entries []byte) []byte {
	first := true
	_ = rawjson.EachElement(entries, func(entry []byte) error {
		token, err := rawjson.ParseObject(entry)
		if err != nil {
			return err
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendCandidate(dst, token)
		return nil
	})
	return dst
}

func appendCandidate(dst []byte, token rawjson.Object) []byte {
	dst = append(append(dst, `{"token":`...), orNull(token.Get("token"))...)
	dst = append(append(dst, `,"logProbability":`...), orNull(token.Get("logprob"))...)
	return append(dst, '}')
}

func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

// closeList ends a list of which each element has a comma after it.
func closeList(dst []byte) []byte {
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, ']')
}
