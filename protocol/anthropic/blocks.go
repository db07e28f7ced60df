package anthropic

import (
	"slices"

	"polar/llm"
)

// The kinds of content block that an answer has.
const (
	thinkingBlock = "thinking"
	textBlock     = "text"
	toolBlock     = "tool_use"
)

// blockWriter is told of the content blocks of an answer, one after the other.
type blockWriter interface {
	// openBlock begins a block. The call has an id and a name if it is a tool's.
	openBlock(kind string, call llm.ToolCall)
	// growBlock adds to the text of the open block, or to a tool's input.
	growBlock(kind, text string)
	closeBlock(kind string)
}

// blocks cuts the events of an answer into content blocks in the order in which
// they come. Messages has one block open at a time.
type blocks struct {
	answer
	to   blockWriter
	kind string // of the open block, "" if none is
	// call is the open call of a tool and its index. It is held back until its
	// name is known.
	call  llm.ToolCall
	index int
	held  bool
	begun []int // the indexes of all calls so far
}

// errOutOfOrder ends an answer that cannot be said in Messages.
func errOutOfOrder() *llm.Error {
	return llm.Errorf(llm.EngineFailed, "the engine went on with a tool call after it had begun something else")
}

// add takes one event in.
func (b *blocks) add(e llm.Event) error {
	b.grow(thinkingBlock, e.Reasoning)
	b.grow(textBlock, e.Text)
	for _, d := range e.ToolCalls {
		if err := b.addCall(d); err != nil {
			return err
		}
	}
	if e.Finish != "" {
		b.close()
	}
	return nil
}

func (b *blocks) grow(kind, text string) {
	if text == "" {
		return
	}
	if b.kind != kind {
		b.close()
		b.kind = kind
		b.to.openBlock(kind, llm.ToolCall{})
	}
	b.to.growBlock(kind, text)
}

func (b *blocks) addCall(d llm.ToolCallDelta) error {
	if b.kind != toolBlock || b.index != d.Index {
		if slices.Contains(b.begun, d.Index) {
			return errOutOfOrder()
		}
		b.close()
		b.kind, b.index, b.held, b.call = toolBlock, d.Index, true, llm.ToolCall{}
		b.begun = append(b.begun, d.Index)
	}
	if !b.held {
		if d.Arguments != "" {
			b.to.growBlock(toolBlock, d.Arguments)
		}
		return nil
	}
	b.call.ID += d.ID
	b.call.Name += d.Name
	b.call.Arguments += d.Arguments
	if b.call.Name != "" {
		b.release()
	}
	return nil
}

// release lets out the call that was held back.
func (b *blocks) release() {
	b.held = false
	b.call.ID = b.toolID(b.call, b.index)
	b.to.openBlock(toolBlock, b.call)
	if b.call.Arguments != "" {
		b.to.growBlock(toolBlock, b.call.Arguments)
	}
}

func (b *blocks) close() {
	if b.kind == "" {
		return
	}
	if b.held {
		b.release()
	}
	b.to.closeBlock(b.kind)
	b.kind = ""
}

// stopReason says why the answer ended, in Anthropic's words.
func (b *blocks) stopReason(e llm.Event) string {
	switch {
	case e.Finish == llm.FinishLength:
		return "max_tokens"
	case e.Finish == llm.FinishFilter:
		return "refusal"
	case len(b.begun) > 0:
		// Engines say "stop" too when a tool was named in the request.
		return "tool_use"
	case e.Stop != "":
		return "stop_sequence"
	}
	return "end_turn"
}

// tally counts the tokens of an answer: as the engine does if it tells, from
// the ids otherwise.
type tally struct {
	usage llm.Usage
	told  bool
}

func (t *tally) add(e llm.Event) {
	switch {
	case e.Usage != nil:
		t.usage, t.told = *e.Usage, true
	case !t.told:
		if e.PromptIDs != nil {
			t.usage.PromptTokens = len(e.PromptIDs)
		}
		t.usage.CompletionTokens += len(e.Tokens)
	}
}
