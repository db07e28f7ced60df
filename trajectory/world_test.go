package trajectory_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"polar"
	"polar/llm"
	"polar/trajectory"
)

const (
	endOfTurn   = 2
	startOfTurn = 3
	firstWord   = 10
	words       = 8
)

// choices answers which of n things happens.
type choices func(n int) int

// world makes up the calls of a session: conversations that grow, fork, come
// back re-rendered, are cut off, retried, rewritten, lost.
type world struct {
	pick     choices
	messages bool
	// roles says that calls have tools and what tells their role.
	roles   bool
	calls   []polar.Call
	flat    []llm.IDs
	prompts []*polar.Prompt
}

func newWorld(pick choices, calls int, messages bool) *world {
	w := &world{pick: pick, messages: messages, roles: messages}
	for range calls {
		w.step()
	}
	return w
}

func (w *world) sentence(from int) llm.IDs {
	ids := make(llm.IDs, from+w.pick(4))
	for i := range ids {
		ids[i] = int32(firstWord + w.pick(words))
	}
	return ids
}

func (w *world) step() {
	var prompt llm.IDs
	var messages []json.RawMessage
	action := 0
	if len(w.calls) > 0 {
		action = w.pick(8)
	}
	switch action {
	case 0, 7: // a conversation of its own
		prompt = slices.Concat(llm.IDs{startOfTurn}, w.sentence(0), llm.IDs{endOfTurn, startOfTurn})
		messages = []json.RawMessage{message("user", prompt)}
	case 1, 2, 3, 4: // an earlier answer comes back, mostly the last
		j := len(w.calls) - 1
		if action == 4 {
			j = w.pick(len(w.calls))
		}
		answer := sampledIDs(w.calls[j])
		came := answer
		if action == 3 && len(answer) > 0 {
			came = slices.Concat(w.sentence(0), answer[w.pick(len(answer)):])
			if came[len(came)-1] != endOfTurn && w.pick(2) == 0 {
				came = append(came, endOfTurn)
			}
		}
		next := slices.Concat(w.sentence(0), llm.IDs{startOfTurn})
		prompt = slices.Concat(w.flat[j], came, next)
		messages = slices.Concat(w.calls[j].Messages, []json.RawMessage{w.calls[j].Reply, message("user", next)})
	case 5: // the same question again
		j := w.pick(len(w.calls))
		prompt, messages = w.flat[j], w.calls[j].Messages
	case 6: // the history is rewritten
		j := w.pick(len(w.calls))
		prompt = slices.Concat(w.flat[j][:w.pick(len(w.flat[j])+1)], w.sentence(0))
		messages = []json.RawMessage{message("user", prompt)}
	}
	w.add(prompt, messages)
}

// add records a call that asks prompt, with an answer and whatever may befall it.
func (w *world) add(prompt llm.IDs, messages []json.RawMessage) {
	n := len(w.calls)
	answer := w.sentence(0)
	finish := llm.FinishStop
	switch w.pick(6) {
	case 0:
		finish = llm.FinishLength
	case 1: // the engine trims its stop token, and the answer may be empty
	default:
		answer = append(answer, endOfTurn)
	}
	call := polar.Call{
		ID: polar.CallID(fmt.Sprintf("c%03d", n)), Start: time.Unix(1000, int64(n/2)), Finish: finish,
		Delivered: true, Engine: llm.Engine{Kind: "vllm"},
		Usage: llm.Usage{PromptTokens: len(prompt), CompletionTokens: len(answer)},
	}
	for i, id := range answer {
		lp := -float32(i+1) / float32(n+1)
		if w.pick(20) == 0 {
			lp = float32(math.NaN())
		}
		call.Sampled = append(call.Sampled, llm.Token{ID: id, Logprob: lp})
	}
	call.Prompt = w.delta(prompt)
	if w.messages {
		call.Messages, call.Reply = messages, message("assistant", answer)
	}
	if w.roles {
		w.disguise(&call)
	}
	switch w.pick(16) {
	case 0:
		call.Delivered = false
	case 1:
		call.Error, call.Delivered, call.Sampled = &polar.CallError{Kind: llm.EngineFailed}, false, nil
	case 2:
		call.Untrainable = "no logprobs"
	case 3:
		call.Prompt = nil
	case 4:
		call.Engine.Kind = "sglang"
	case 5:
		call.Version = fmt.Sprint("v", w.pick(2))
	}
	w.calls, w.flat = append(w.calls, call), append(w.flat, prompt)
}

// disguise makes the call one of an agent, of its sub-agent or of neither.
func (w *world) disguise(c *polar.Call) {
	tool := func(name string) json.RawMessage {
		return json.RawMessage(`{"type":"function","function":{"name":"` + name + `"}}`)
	}
	switch w.pick(12) {
	case 0:
		c.Headers = map[string]string{"x-parent-session-id": "s1", "x-session-id": fmt.Sprint("s", 2+w.pick(2))}
	case 1:
		c.Tools = []json.RawMessage{tool("complete_task")}
	case 2:
		c.Messages = slices.Concat(c.Messages, []json.RawMessage{json.RawMessage(user("CRITICAL: Respond with TEXT ONLY"))})
	case 3:
		c.Messages = slices.Concat([]json.RawMessage{json.RawMessage(`{"role":"system","content":"You are a title generator"}`)}, c.Messages)
	case 4:
		c.Messages = slices.Concat([]json.RawMessage{json.RawMessage(`{"role":"system","content":"You are another"}`)}, c.Messages)
	case 5, 6:
	default:
		c.Tools = []json.RawMessage{tool("ls")}
	}
}

// record is the calls, with the question of one of them for an instruction.
func (w *world) record(calls []polar.Call) trajectory.Record {
	r := trajectory.Record{Calls: calls}
	if w.messages && len(w.flat) > 0 {
		r.Instruction = fmt.Sprint([]int32(w.flat[len(w.flat)/2]))
	}
	return r
}

// delta makes the prompt say what it adds to an earlier one, which may be any,
// with any share of what they have in common.
func (w *world) delta(ids llm.IDs) *polar.Prompt {
	p := polar.NewPrompt(nil, 0, ids)
	if len(w.prompts) > 0 && w.pick(4) > 0 {
		j := w.pick(len(w.prompts))
		base := w.prompts[j].IDs()
		same := 0
		for same < min(len(base), len(ids)) && base[same] == ids[same] {
			same++
		}
		if w.pick(3) == 0 {
			same = w.pick(same + 1)
		}
		p = polar.NewPrompt(w.prompts[j], same, ids[same:])
	}
	w.prompts = append(w.prompts, p)
	return p
}

// standalone is the calls with prompts that build on nothing.
func (w *world) standalone() []polar.Call {
	out := slices.Clone(w.calls)
	for i := range out {
		if out[i].Prompt != nil {
			out[i].Prompt = polar.NewPrompt(nil, 0, out[i].Prompt.IDs())
		}
	}
	return out
}

func message(role string, ids llm.IDs) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, fmt.Sprint([]int32(ids))))
}

func sampledIDs(c polar.Call) llm.IDs {
	ids := make(llm.IDs, len(c.Sampled))
	for i, t := range c.Sampled {
		ids[i] = t.ID
	}
	return ids
}
