package backend

import (
	"bytes"
	"errors"
	"slices"

	"polar/llm"
	"polar/rawjson"
)

// tokens puts together what was read of the sampled tokens, from the best
// source there is.
func (c *chunk) tokens() []llm.Token {
	ids := c.ids
	if c.allIDs != nil {
		ids = c.allIDs
	}
	if len(c.sampled) > 0 {
		return reconcile(ids, c.sampled)
	}
	return pair(ids, c.logprobs)
}

// pair puts ids and logprobs together. Where their numbers differ nobody can
// say which belong to each other: the ids stay, the logprobs are not given.
func pair(ids []int32, logprobs []float32) []llm.Token {
	if len(ids) == 0 {
		return nil
	}
	tokens := make([]llm.Token, len(ids))
	for i, id := range ids {
		logprob := llm.NoLogprob()
		if len(logprobs) == len(ids) {
			logprob = logprobs[i]
		}
		tokens[i] = llm.Token{ID: id, Logprob: logprob}
	}
	return tokens
}

// reconcile takes SGLang's pairs for what was sampled, and the plain list of
// ids to check them: some versions leave the stop token out of one or the
// other. An id that only the list has is given without a logprob; where the two
// contradict each other the longer stands, and no logprob is given.
func reconcile(ids []int32, sampled []llm.Token) []llm.Token {
	out := slices.Clone(sampled)
	n := min(len(ids), len(sampled))
	for i := range n {
		if ids[i] == sampled[i].ID {
			continue
		}
		if len(ids) >= len(sampled) {
			return pair(ids, nil)
		}
		for i := range out {
			out[i].Logprob = llm.NoLogprob()
		}
		return out
	}
	for _, id := range ids[n:] {
		out = append(out, llm.Token{ID: id, Logprob: llm.NoLogprob()})
	}
	return out
}

// metaInfo reads SGLang's account of an answer.
func (c *chunk) metaInfo(key []byte) error {
	if c.w.Null() {
		return nil
	}
	if string(key) != "output_token_logprobs" {
		_, err := c.w.Value()
		return err
	}
	var err error
	c.sampled, err = readSampled(&c.w, c.sampled)
	return err
}

// readSampled reads a list of [logprob, id, text]; a logprob that is null or
// vLLM's mark of an absent one is not known.
func readSampled(w *rawjson.Walker, dst []llm.Token) ([]llm.Token, error) {
	err := w.Array(func() error {
		token, at := llm.Token{ID: -1, Logprob: llm.NoLogprob()}, 0
		err := w.Array(func() error {
			value, err := w.Value()
			if err != nil {
				return err
			}
			switch at {
			case 0:
				if !rawjson.IsNull(value) {
					token.Logprob, err = logprob(value)
				}
			case 1:
				var id int
				id, err = rawjson.Int(value)
				token.ID = int32(id)
				if err == nil && (id < 0 || int(token.ID) != id) {
					err = errors.New("a token id is out of range")
				}
			}
			at++
			return err
		})
		if err == nil && token.ID < 0 {
			err = errors.New("a sampled token without its id")
		}
		dst = append(dst, token)
		return err
	})
	return dst, err
}

// logprob reads a number; one that means "absent" is not given.
func logprob(value []byte) (float32, error) {
	f, err := rawjson.Float(value)
	if err != nil || f <= absentLogprob {
		return llm.NoLogprob(), err
	}
	return float32(f), nil
}

// extension reads the ids that SGLang gives for an answer as a whole.
func (c *chunk) extension(key []byte) error {
	if c.w.Null() {
		return nil
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	switch string(key) {
	case "input_ids":
		return c.promptIDs(value)
	case "output_ids": // a list for each choice, of which there is one
		if nested := bytes.TrimLeft(value[1:], " \t\r\n"); len(nested) > 0 && nested[0] == '[' {
			lists, err := rawjson.ParseArray(value)
			if err != nil {
				return err
			}
			value = lists[0]
		}
		c.allIDs, err = rawjson.Ints(c.allIDs[:0], value)
		return err
	}
	return nil
}
