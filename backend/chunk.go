package backend

import (
	"bytes"
	"errors"
	"fmt"

	"polar/llm"
	"polar/rawjson"
)

// absentLogprob is what vLLM gives for a logprob it does not have; real ones
// are never below it.
const absentLogprob = -9999

// chunk reads the events of vLLM's Chat Completions stream, one after the
// other. Its event is new with each and shares nothing with the bytes read.
type chunk struct {
	keepLogprobs bool
	model        string
	event        llm.Event
	ids          []int32 // of the event being read; used again for the next
	logprobs     []float32
}

func (c *chunk) parse(data []byte) error {
	c.event = llm.Event{}
	c.ids, c.logprobs = c.ids[:0], c.logprobs[:0]
	err := rawjson.Members(data, c.member)
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if err != nil {
		return fmt.Errorf("engine sent an event that is not understood: %w", err)
	}
	c.pair()
	return nil
}

func (c *chunk) member(key, value []byte) (err error) {
	switch string(key) {
	case "choices":
		return rawjson.EachElement(value, func(choice []byte) error { return rawjson.Members(choice, c.choice) })
	case "prompt_token_ids":
		if !rawjson.IsNull(value) {
			ids := make(llm.IDs, 0, rawjson.CountElements(value))
			c.event.PromptIDs, err = rawjson.Ints(ids, value)
		}
	case "usage":
		if !rawjson.IsNull(value) {
			c.event.Usage = &llm.Usage{}
			return rawjson.Members(value, c.usage)
		}
	case "model":
		if c.model == "" {
			c.model, err = rawjson.String(value)
		}
	case "error":
		if !rawjson.IsNull(value) {
			return brokenStream(value)
		}
	}
	return err
}

func (c *chunk) choice(key, value []byte) (err error) {
	if rawjson.IsNull(value) {
		return nil
	}
	switch string(key) {
	case "delta":
		return rawjson.Members(value, c.delta)
	case "token_ids":
		c.ids, err = rawjson.Ints(c.ids, value)
	case "logprobs":
		if c.keepLogprobs {
			c.event.Logprobs = bytes.Clone(value)
		}
		return rawjson.Members(value, func(key, value []byte) error {
			if string(key) != "content" || rawjson.IsNull(value) {
				return nil
			}
			return rawjson.EachElement(value, c.logprob)
		})
	case "finish_reason":
		c.event.Finish, err = rawjson.String(value)
	}
	return err
}

func (c *chunk) logprob(entry []byte) error {
	logprob := llm.NoLogprob()
	err := rawjson.Members(entry, func(key, value []byte) error {
		if string(key) != "logprob" || rawjson.IsNull(value) {
			return nil
		}
		f, err := rawjson.Float(value)
		if f > absentLogprob {
			logprob = float32(f)
		}
		return err
	})
	c.logprobs = append(c.logprobs, logprob)
	return err
}

func (c *chunk) delta(key, value []byte) (err error) {
	if rawjson.IsNull(value) {
		return nil
	}
	switch string(key) {
	case "content":
		c.event.Text, err = rawjson.String(value)
	case "reasoning", "reasoning_content": // some versions send both, with the same text
		c.event.Reasoning, err = rawjson.String(value)
	case "tool_calls":
		return rawjson.EachElement(value, c.toolCall)
	}
	return err
}

// maxToolCalls bounds the index of a tool call, by which lists are grown.
const maxToolCalls = 1024

func (c *chunk) toolCall(data []byte) error {
	var d llm.ToolCallDelta
	err := rawjson.Members(data, func(key, value []byte) (err error) {
		if rawjson.IsNull(value) {
			return nil
		}
		switch string(key) {
		case "index":
			d.Index, err = rawjson.Int(value)
			if err == nil && (d.Index < 0 || d.Index >= maxToolCalls) {
				err = fmt.Errorf("index %d of a tool call is out of range", d.Index)
			}
		case "id":
			d.ID, err = rawjson.String(value)
		case "function":
			return rawjson.Members(value, func(key, value []byte) (err error) {
				switch {
				case rawjson.IsNull(value):
				case string(key) == "name":
					d.Name, err = rawjson.String(value)
				case string(key) == "arguments":
					d.Arguments, err = rawjson.String(value)
				}
				return err
			})
		}
		return err
	})
	c.event.ToolCalls = append(c.event.ToolCalls, d)
	return err
}

func (c *chunk) usage(key, value []byte) (err error) {
	u := c.event.Usage
	switch string(key) {
	case "prompt_tokens":
		u.PromptTokens, err = rawjson.Int(value)
	case "completion_tokens":
		u.CompletionTokens, err = rawjson.Int(value)
	case "prompt_tokens_details":
		if rawjson.IsNull(value) {
			return nil
		}
		return rawjson.Members(value, func(key, value []byte) (err error) {
			if string(key) == "cached_tokens" && !rawjson.IsNull(value) {
				u.CachedTokens, err = rawjson.Int(value)
			}
			return err
		})
	}
	return err
}

// pair puts ids and logprobs together. Where their numbers differ nobody can
// say which belong to each other: the ids stay, the logprobs are not given.
func (c *chunk) pair() {
	if len(c.ids) == 0 {
		return
	}
	c.event.Tokens = make([]llm.Token, len(c.ids))
	for i, id := range c.ids {
		logprob := llm.NoLogprob()
		if len(c.logprobs) == len(c.ids) {
			logprob = c.logprobs[i]
		}
		c.event.Tokens[i] = llm.Token{ID: id, Logprob: logprob}
	}
}
