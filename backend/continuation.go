package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// continuation gathers the events of SGLang's /generate. Each event may hold
// everything so far or only what is new, and not all of its lists need do the
// same: some versions give new text beside all logprobs. So each list is told
// by its length.
type continuation struct {
	w       rawjson.Walker
	text    string
	ids     []int32
	sampled []llm.Token
	finish  string
	usage   llm.Usage
	id      string // that the engine gave the request
	event   generateEvent
}

// generateEvent is one event as it was sent.
type generateEvent struct {
	text     string
	ids      []int32
	sampled  []llm.Token
	total    int // sampled tokens so far; 0 if not said
	logprobs int // logprobs so far; 0 if not said
	failed   error
}

// take reads one event.
func (c *continuation) take(data []byte) error {
	e := &c.event
	*e = generateEvent{ids: e.ids[:0], sampled: e.sampled[:0]}
	c.w = rawjson.NewWalker(data)
	err := c.w.Object(c.member)
	if err == nil {
		err = c.w.End()
	}
	if err != nil {
		return fmt.Errorf("engine sent an event that is not understood: %w", err)
	}
	if e.failed != nil {
		return e.failed
	}
	var ids, sampled growth
	had := len(c.ids) + len(c.sampled)
	c.ids, ids = grow(c.ids, e.ids, e.total)
	c.sampled, sampled = grow(c.sampled, e.sampled, or(e.logprobs, e.total))
	if ids == unclear {
		ids = sampled
	}
	switch {
	case had == 0 || c.text == "" || ids == onlyNew:
		c.text += e.text
		if had == 0 {
			c.text = e.text
		}
	case strings.HasPrefix(e.text, c.text):
		c.text = e.text
	case ids == unclear:
		c.text += e.text
	}
	return nil
}

// growth says what a list of an event holds.
type growth byte

const (
	unclear    growth = iota
	everything        // from the first on
	onlyNew
)

// grow adds to have what got has beyond it, where there are total in all. A
// list that fits neither way is left out: after an abort it is the last entry
// alone.
func grow[T comparable](have, got []T, total int) ([]T, growth) {
	switch {
	case len(got) == 0:
		return have, unclear
	case len(have) == 0:
		return append(have, got...), unclear
	case len(got) == total && total >= len(have):
		return append(have, got[len(have):]...), everything
	case len(got) == total-len(have):
		return append(have, got...), onlyNew
	case len(got) >= len(have) && slices.Equal(got[:len(have)], have):
		return append(have, got[len(have):]...), everything
	case total == 0:
		return append(have, got...), onlyNew
	}
	return have, unclear
}

func (c *continuation) member(key []byte) error {
	if c.w.Null() {
		return nil
	}
	if string(key) == "meta_info" {
		return c.w.Object(c.metaInfo)
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	switch string(key) {
	case "text":
		c.event.text, err = rawjson.String(value)
	case "output_ids":
		c.event.ids, err = rawjson.Ints(c.event.ids, value)
	case "error":
		c.event.failed = brokenStream(value)
	}
	return err
}

func (c *continuation) metaInfo(key []byte) (err error) {
	if c.w.Null() {
		return nil
	}
	if string(key) == "output_token_logprobs" {
		c.event.sampled, err = readSampled(&c.w, c.event.sampled)
		return err
	}
	value, err := c.w.Value()
	if err != nil {
		return err
	}
	switch string(key) {
	case "finish_reason":
		return c.finished(value)
	case "id":
		c.id, err = rawjson.String(value)
	case "prompt_tokens":
		c.usage.PromptTokens, err = rawjson.Int(value)
	case "completion_tokens":
		c.event.total, err = rawjson.Int(value)
		c.usage.CompletionTokens = c.event.total
	case "output_token_logprobs_length":
		c.event.logprobs, err = rawjson.Int(value)
	case "cached_tokens":
		c.usage.CachedTokens, err = rawjson.Int(value)
	}
	return err
}

// finished reads why the answer ended: an object here, where chat has a word.
func (c *continuation) finished(value []byte) (err error) {
	if value[0] == '"' {
		c.finish, err = rawjson.String(value)
		return err
	}
	o, err := rawjson.ParseObject(value)
	if err != nil {
		return err
	}
	if c.finish, err = rawjson.String(o.Get("type")); err != nil {
		return err
	}
	if c.finish == "" {
		return errors.New("an end without a reason")
	}
	return nil
}
