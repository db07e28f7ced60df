package backend

import (
	"context"
	"errors"
	"fmt"

	"polar/llm"
	"polar/rawjson"
)

// tokenizeBody asks for the tokens of a conversation, rendered as a chat with
// the same fields would be.
func (d dialect) tokenizeBody(req llm.Request, more string) *body {
	b := newBody()
	b.text(`{"model":`)
	b.quoted(req.Model)
	d.conversation(b, req)
	if kwargs := req.Sampling.ChatTemplateKwargs; len(kwargs) > 0 {
		b.field("chat_template_kwargs", kwargs.Append(nil))
	}
	for _, key := range []string{"chat_template", "reasoning_effort", "continue_final_message"} {
		b.field(key, req.Extra.Get(key))
	}
	b.text(more)
	b.text("}")
	return b
}

// countTokens asks the server's tokenizer. A server that has none is
// errors.ErrUnsupported.
func (c *client) countTokens(ctx context.Context, d dialect, req llm.Request, more string) (int, error) {
	answer, err := c.post(ctx, "/tokenize", d.tokenizeBody(req, more))
	if f, ok := errors.AsType[*failure](err); ok && (f.status == 404 || f.status == 405) {
		return 0, fmt.Errorf("count tokens at %s: %w", c.url, errors.ErrUnsupported)
	}
	if err != nil {
		return 0, c.explain(ctx, c.timeout, err)
	}
	o, err := rawjson.ParseObject(answer)
	if err == nil {
		var n int
		if n, err = rawjson.Int(o.Get("count")); err == nil {
			return n, nil
		}
	}
	return 0, llm.Errorf(llm.EngineFailed, "engine %s counted tokens in a way that is not understood: %v", c.url, err)
}
