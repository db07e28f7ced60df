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

// chunk reads what engines send for a chat: the events of a stream, one after
// the other, or an answer in one piece. Its event is new with each and shares
// nothing with the bytes read.
type chunk struct {
	w            rawjson.Walker
	keepLogprobs bool
	// late keeps ids and logprobs of all events for tokens, instead of giving
	// them with each.
	late     bool
	model    string
	event    llm.Event
	ids      []int32 // of the event being read; used again for the next
	logprobs []float32
	sampled  []llm.Token // SGLang's own pairs of id and logprob
	allIDs   []int32     // the ids of the whole answer, where a stream gives them so
}

func (c *chunk) parse(data []byte) error {
	c.event = llm.Event{}
	if !c.late {
		c.ids, c.logprobs = c.ids[:0], c.logprobs[:0]
	}
	c.w = rawjson.NewWalker(data)
	err := c.w.Object(c.member)
	if err == nil {
		err = c.w.End()
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if err != nil {
		return fmt.Errorf("engine sent an event that is not understood: %w", err)
	}
	if !c.late {
		c.event.Tokens = c.tokens()
	}
	return nil
}

func (c *chunk) member(key []byte) error {
	if c.w.Null() {
		return nil
	}
	switch string(key) {
	case "choices":
		return c.w.Array(c.choice)
	case "usage":
		c.event.Usage = &llm.Usage{}
		return c.w.Object(c.usage)
	case "sglext":
		return c.w.Object(c.extension)
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	switch string(key) {
	case "prompt_token_ids":
		err = c.promptIDs(value)
	case "model":
		if c.model == "" {
			c.model, err = rawjson.String(value)
		}
	case "error":
		return brokenStream(value)
	}
	return err
}

func (c *chunk) promptIDs(value []byte) (err error) {
	ids := make(llm.IDs, 0, rawjson.CountElements(value))
	c.event.PromptIDs, err = rawjson.Ints(ids, value)
	return err
}

func (c *chunk) choice() error { return c.w.Object(c.choiceMember) }

func (c *chunk) choiceMember(key []byte) error {
	if c.w.Null() {
		return nil
	}
	switch string(key) {
	case "delta", "message":
		return c.w.Object(c.delta)
	case "logprobs":
		return c.readLogprobs()
	case "meta_info":
		return c.w.Object(c.metaInfo)
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	switch string(key) {
	case "token_ids", "response_token_ids": // of which there is never more than one
		c.ids, err = rawjson.Ints(c.ids, value)
	case "prompt_token_ids":
		err = c.promptIDs(value)
	case "finish_reason":
		c.event.Finish, err = rawjson.String(value)
	case "stop_reason", "matched_stop": // vLLM and SGLang; a number is the id of a token
		if value[0] == '"' {
			c.event.Stop, err = rawjson.String(value)
		}
	}
	return err
}

func (c *chunk) readLogprobs() error {
	if !c.keepLogprobs {
		return c.w.Object(c.logprobsMember)
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	c.event.Logprobs = bytes.Clone(value)
	outer := c.w
	c.w = rawjson.NewWalker(value)
	err = c.w.Object(c.logprobsMember)
	c.w = outer
	return err
}

func (c *chunk) logprobsMember(key []byte) error {
	if c.w.Null() {
		return nil
	}
	if string(key) == "content" {
		return c.w.Array(c.logprob)
	}
	_, err := c.w.Value()
	return err
}

func (c *chunk) logprob() error {
	c.logprobs = append(c.logprobs, llm.NoLogprob())
	return c.w.Object(c.logprobMember)
}

func (c *chunk) logprobMember(key []byte) error {
	if c.w.Null() {
		return nil
	}
	value, err := c.w.Value()
	if err != nil || string(key) != "logprob" {
		return err
	}
	c.logprobs[len(c.logprobs)-1], err = logprob(value)
	return err
}

func (c *chunk) delta(key []byte) error {
	if c.w.Null() {
		return nil
	}
	if string(key) == "tool_calls" {
		return c.w.Array(c.toolCall)
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	switch string(key) {
	case "content":
		c.event.Text, err = rawjson.String(value)
	case "reasoning", "reasoning_content": // some versions send both, with the same text
		c.event.Reasoning, err = rawjson.String(value)
	}
	return err
}

func (c *chunk) toolCall() error {
	n := len(c.event.ToolCalls) // which is the index where none is given
	if n >= maxToolCalls {
		return fmt.Errorf("more than %d tool calls", maxToolCalls)
	}
	c.event.ToolCalls = append(c.event.ToolCalls, llm.ToolCallDelta{Index: n})
	return c.w.Object(c.toolCallMember)
}

// maxToolCalls bounds the index of a tool call, by which lists are grown.
const maxToolCalls = 1024

func (c *chunk) toolCallMember(key []byte) error {
	if c.w.Null() {
		return nil
	}
	if string(key) == "function" {
		return c.w.Object(c.function)
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	d := &c.event.ToolCalls[len(c.event.ToolCalls)-1]
	switch string(key) {
	case "index":
		d.Index, err = rawjson.Int(value)
		if err == nil && (d.Index < 0 || d.Index >= maxToolCalls) {
			err = fmt.Errorf("index %d of a tool call is out of range", d.Index)
		}
	case "id":
		d.ID, err = rawjson.String(value)
	}
	return err
}

func (c *chunk) function(key []byte) error {
	if c.w.Null() {
		return nil
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	d := &c.event.ToolCalls[len(c.event.ToolCalls)-1]
	switch string(key) {
	case "name":
		d.Name, err = rawjson.String(value)
	case "arguments":
		d.Arguments, err = rawjson.String(value)
	}
	return err
}

func (c *chunk) usage(key []byte) error {
	if c.w.Null() {
		return nil
	}
	if string(key) == "prompt_tokens_details" {
		return c.w.Object(c.usage)
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	u := c.event.Usage
	switch string(key) {
	case "prompt_tokens":
		u.PromptTokens, err = rawjson.Int(value)
	case "completion_tokens":
		u.CompletionTokens, err = rawjson.Int(value)
	case "cached_tokens":
		u.CachedTokens, err = rawjson.Int(value)
	}
	return err
}
