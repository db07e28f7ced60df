package trajectory

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

// chain is the turns of one trace to be.
type chain struct {
	id     polar.TraceID
	links  []link
	reason polar.SplitReason
	parent *chain
	// conversation is the chain the conversation began with; segments counts
	// the traces of a conversation, on that chain.
	conversation *chain
	segments     int
	// marker is the role of the conversation, once cast has found it.
	marker
	setup
}

// link is a turn of a chain with the tokens between the answer before it and
// its own, and how far that answer had drifted when it came back.
type link struct {
	turn    *turn
	between llm.IDs
	drift   polar.Drift
}

func newChain(first *turn, reason polar.SplitReason, parent *chain) *chain {
	c := &chain{links: []link{{turn: first}}, reason: reason, parent: parent}
	c.join()
	first.chain = c
	return c
}

// join finds the conversation that the chain is part of. A fork begins one of
// its own, unless it is into another role, and so does another thread, unless
// it is where a compaction is made.
func (c *chain) join() {
	c.conversation = c
	if c.parent == nil {
		return
	}
	from, to := c.parent.links[0].turn, c.links[0].turn
	compacts := c.role == polar.RoleCompaction || c.parent.role == polar.RoleCompaction
	if (compacts || sameThread(from, to)) && (c.reason != polar.SplitFork || from.mark.role != to.mark.role) {
		c.conversation = c.parent.conversation
	}
}

func (c *chain) add(l link) {
	c.links[len(c.links)-1].turn.continued = true
	l.turn.chain = c
	c.links = append(c.links, l)
}

func (c *chain) first() *polar.Call { return c.links[0].turn.call }

func (c *chain) sampled() int {
	n := 0
	for _, l := range c.links {
		n += len(l.turn.ids)
	}
	return n
}

// trace writes the chain out. It is to be called once, after its parents'.
func (c *chain) trace() polar.Trace {
	first, last := c.links[0].turn.call, c.links[len(c.links)-1].turn.call
	n := 0
	for _, l := range c.links {
		n += len(l.between) + len(l.turn.ids)
	}
	t := polar.Trace{
		ID:               c.id,
		Role:             c.role,
		PromptIDs:        first.Prompt.IDs(),
		ResponseIDs:      make(llm.IDs, 0, n),
		LossMask:         make(polar.Mask, 0, n),
		ResponseLogprobs: make(llm.Logprobs, 0, n),
		PromptMessages:   slices.Concat([]json.RawMessage{}, first.Messages),
		ResponseMessages: []json.RawMessage{},
		Tools:            slices.Clone(first.Tools),
		FinishReason:     last.Finish,
		Calls:            make([]polar.CallID, 0, len(c.links)),
		PolicyVersions:   []polar.VersionSpan{},
		SplitReason:      c.reason,
		Segment:          c.conversation.segments,
		Metadata:         map[string]json.RawMessage{},
	}
	c.conversation.segments++
	for p := c.parent; p != nil && t.ParentID == ""; p = p.parent {
		t.ParentID = p.id
	}
	t.SetMeta("role_evidence", c.evidence)
	var noLogprobs, otherTools []polar.CallID
	for i, l := range c.links {
		call := l.turn.call
		t.Calls = append(t.Calls, call.ID)
		t.Drift.Turns += l.drift.Turns
		t.Drift.Tokens += l.drift.Tokens
		t.ResponseIDs = append(t.ResponseIDs, l.between...)
		t.LossMask = t.LossMask[:len(t.ResponseIDs)]
		t.ResponseLogprobs = t.ResponseLogprobs[:len(t.ResponseIDs)]
		if v := call.Version; len(call.Sampled) > 0 && v != version(t.PolicyVersions) {
			t.PolicyVersions = append(t.PolicyVersions, polar.VersionSpan{Version: v, Offset: len(t.ResponseIDs)})
		}
		if !appendSampled(&t, l.turn) {
			noLogprobs = append(noLogprobs, call.ID)
		}
		if i > 0 {
			t.ResponseMessages = append(t.ResponseMessages, messagesBetween(c.links[i-1].turn.call, call)...)
			if !sameTools(first.Tools, call.Tools) {
				otherTools = append(otherTools, call.ID)
			}
		}
		if !rawjson.IsNull(call.Reply) {
			t.ResponseMessages = append(t.ResponseMessages, call.Reply)
		}
	}
	if noLogprobs != nil {
		t.SetMeta("missing_logprobs", noLogprobs)
	}
	if otherTools != nil {
		t.SetMeta("tools_changed", otherTools)
	}
	return t
}

// appendSampled adds the answer of a turn and reports whether every token had a
// logprob. An infinite one cannot be written as JSON and counts as missing.
func appendSampled(t *polar.Trace, from *turn) bool {
	t.ResponseIDs = append(t.ResponseIDs, from.ids...)
	complete := true
	for _, token := range from.call.Sampled {
		if !token.HasLogprob() || math.IsInf(float64(token.Logprob), 0) {
			token.Logprob = llm.NoLogprob()
			complete = false
		}
		t.LossMask = append(t.LossMask, true)
		t.ResponseLogprobs = append(t.ResponseLogprobs, token.Logprob)
	}
	return complete
}

// version is the one that the last tokens were sampled under, if known.
func version(spans []polar.VersionSpan) string {
	if len(spans) == 0 {
		return ""
	}
	return spans[len(spans)-1].Version
}

// messagesBetween are the messages that call has after those of the call before
// it and the answer to that.
func messagesBetween(before, call *polar.Call) []json.RawMessage {
	if len(call.Messages) <= len(before.Messages) {
		return nil
	}
	rest := call.Messages[len(before.Messages):]
	if role(rest[0]) == "assistant" {
		rest = rest[1:]
	}
	return rest
}

func sameTools(a, b []json.RawMessage) bool {
	return slices.EqualFunc(a, b, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}
