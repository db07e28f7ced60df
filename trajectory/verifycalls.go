package trajectory

import (
	"encoding/json"
	"math"
	"slices"

	"polar"
	"polar/llm"
)

// against checks the traces against the recorded calls of the attempt.
func (c *check) against(calls []polar.Call) {
	byID := make(map[polar.CallID]*polar.Call, len(calls))
	var counted session
	trainable := map[polar.CallID]bool{}
	for i := range calls {
		call := &calls[i]
		if byID[call.ID] != nil {
			c.report("", -1, InvariantForm, "call %s is recorded twice", call.ID)
			return
		}
		byID[call.ID] = call
		trainable[call.ID] = counted.tally(call)
	}
	placed := map[polar.CallID]bool{}
	for i := range c.result.Trajectory.Traces {
		t := &c.result.Trajectory.Traces[i]
		if len(t.LossMask) != len(t.ResponseIDs) || t.ResponseLogprobs != nil && len(t.ResponseLogprobs) != len(t.ResponseIDs) {
			continue // said already, and no token could be looked at
		}
		for _, id := range t.Calls {
			placed[id] = true
			switch {
			case byID[id] == nil:
				c.report(t.ID, -1, InvariantTrained, "call %s is not recorded", id)
				return
			case !byID[id].Delivered:
				c.report(t.ID, -1, InvariantTrained, "call %s was never delivered", id)
			case !trainable[id]:
				c.report(t.ID, -1, InvariantTrained, "call %s cannot be trained on", id)
			}
		}
		c.replay(t, byID)
		if c.stopped {
			return
		}
	}
	for i := range calls {
		if call := &calls[i]; trainable[call.ID] && len(call.Sampled) > 0 && !placed[call.ID] {
			c.report("", -1, InvariantTrained, "the %d tokens of call %s were delivered and are in no trace", len(call.Sampled), call.ID)
		}
	}
	c.counted(&counted.stats, len(calls))
}

// counted holds the counts of the result against those of the calls.
func (c *check) counted(want *stats, calls int) {
	var got stats
	if raw := c.result.Trajectory.Metadata["reconstruction_stats"]; raw == nil || json.Unmarshal(raw, &got) != nil {
		return // said already
	}
	for _, count := range []struct {
		what      string
		says, are int
	}{
		{"sampled_tokens", got.SampledTokens, want.SampledTokens},
		{"abandoned_tokens", got.AbandonedTokens, want.AbandonedTokens},
		{"completions_total", got.CompletionsTotal, want.CompletionsTotal},
	} {
		if count.says != count.are {
			c.report("", -1, InvariantCounted, "%s is %d, the %d calls have %d", count.what, count.says, calls, count.are)
		}
	}
}

// replay goes through the response as its calls were made: what is trained on
// must be their answers, one after the other, and nothing else.
func (c *check) replay(t *polar.Trace, calls map[polar.CallID]*polar.Call) {
	if len(t.Calls) == 0 {
		return
	}
	if first := calls[t.Calls[0]]; !slices.Equal(t.PromptIDs, first.Prompt.IDs()) {
		c.report(t.ID, -1, InvariantFaithful, "its prompt is not that of call %s", first.ID)
		return
	}
	at, kept := 0, filtered(t)
	version := ""
	for _, id := range t.Calls {
		call := calls[id]
		if len(call.Sampled) == 0 {
			continue
		}
		start := c.answerOf(t, call, at, kept)
		if start < 0 || !c.sampled(t, call, start) {
			return
		}
		if t.Drift.Turns == 0 && !c.faithful(t, call, start) {
			return
		}
		if placed := !kept || t.Drift.Turns == 0; placed && call.Version != "" && call.Version != version {
			version = call.Version
			if !slices.Contains(t.PolicyVersions, polar.VersionSpan{Version: version, Offset: start}) {
				c.report(t.ID, start, InvariantForm, "policy_versions does not say that version %s starts here, with call %s", version, id)
			}
		}
		at = start + len(call.Sampled)
	}
	if rest := slices.Index(t.LossMask[at:], true); rest >= 0 {
		c.report(t.ID, at+rest, InvariantTrained, "is trained on and belongs to none of its calls")
	}
}

// answerOf is where the answer of a call begins: with the next token that is
// trained on. Where none is, it is where the prompt ended or, after drift, with
// the next tokens that are the answer's, which finds all answers if they are
// there, though not always where they were put.
func (c *check) answerOf(t *polar.Trace, call *polar.Call, at int, kept bool) int {
	if !kept {
		next := slices.Index(t.LossMask[at:], true)
		if next < 0 {
			c.report(t.ID, -1, InvariantTrained, "the %d tokens of call %s are not trained on", len(call.Sampled), call.ID)
			return -1
		}
		return at + next
	}
	if start := call.Prompt.Len() - len(t.PromptIDs); t.Drift.Turns == 0 && start >= at && start+len(call.Sampled) <= len(t.ResponseIDs) {
		return start
	}
	for start := at; start+len(call.Sampled) <= len(t.ResponseIDs); start++ {
		if c.equals(t, call, start) {
			return start
		}
	}
	c.report(t.ID, -1, InvariantTrained, "the answer of call %s is not in it", call.ID)
	return -1
}

func (c *check) equals(t *polar.Trace, call *polar.Call, start int) bool {
	for k, token := range call.Sampled {
		if t.ResponseIDs[start+k] != token.ID {
			return false
		}
		if lp := logprobAt(t, start+k); lp != 0 && !sameLogprob(lp, token) {
			return false
		}
	}
	return true
}

// sampled checks the tokens of an answer.
func (c *check) sampled(t *polar.Trace, call *polar.Call, start int) bool {
	trained := t.LossMask[start]
	for k, token := range call.Sampled {
		i := start + k
		switch {
		case i >= len(t.ResponseIDs):
			c.report(t.ID, -1, InvariantTrained, "ends after %d of the %d tokens of call %s", k, len(call.Sampled), call.ID)
			return false
		case t.LossMask[i] != trained:
			c.report(t.ID, i, InvariantTrained, "token %d of call %s is not trained on, others of it are", k, call.ID)
			return false
		case t.ResponseIDs[i] != token.ID:
			c.report(t.ID, i, InvariantTrained, "is %d, call %s sampled %d", t.ResponseIDs[i], call.ID, token.ID)
			return false
		case trained && !sameLogprob(logprobAt(t, i), token):
			c.report(t.ID, i, InvariantTrained, "has the logprob %v, call %s sampled it with %v", logprobAt(t, i), call.ID, token.Logprob)
			return false
		}
	}
	return true
}

// sameLogprob compares what a trace has with what was sampled; what JSON cannot
// hold is missing there.
func sameLogprob(lp float32, token llm.Token) bool {
	if !token.HasLogprob() || math.IsInf(float64(token.Logprob), 0) {
		return lp != lp
	}
	return lp == token.Logprob
}

// faithful checks that before an answer stands what the engine had.
func (c *check) faithful(t *polar.Trace, call *polar.Call, start int) bool {
	had := call.Prompt.IDs()
	if len(had) != len(t.PromptIDs)+start {
		c.report(t.ID, start, InvariantFaithful, "%d tokens stand before the answer of call %s, the engine had %d", len(t.PromptIDs)+start, call.ID, len(had))
		return false
	}
	n := len(t.PromptIDs)
	if !slices.Equal(had[:n], t.PromptIDs) {
		c.report(t.ID, -1, InvariantFaithful, "its prompt is not what the engine had for call %s", call.ID)
		return false
	}
	for i, id := range had[n:] {
		if t.ResponseIDs[i] != id {
			c.report(t.ID, i, InvariantFaithful, "is %d, the engine had %d when it sampled call %s", t.ResponseIDs[i], id, call.ID)
			return false
		}
	}
	return true
}
