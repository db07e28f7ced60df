package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func anthropicMessages() client {
	return client{name: "anthropic-sdk-go", wire: "anthropic", open: func(_ *testing.T, to endpoint) conversation {
		return &messagesTalk{
			client: anthropic.NewClient(option.WithBaseURL(to.URL), option.WithAPIKey(to.Key), option.WithMaxRetries(to.Retries)),
			stream: to.Stream,
		}
	}}
}

// messagesTalk talks Messages with anthropic-sdk-go.
type messagesTalk struct {
	client   anthropic.Client
	stream   bool
	system   []anthropic.TextBlockParam
	messages []anthropic.MessageParam
	tools    []anthropic.ToolUnionParam
	calls    []call
}

func (c *messagesTalk) take(q question) {
	if q.System != "" {
		c.system = []anthropic.TextBlockParam{{Text: q.System, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	}
	blocks := []anthropic.ContentBlockParamUnion{anthropic.NewTextBlock(q.Text)}
	if q.Image != "" {
		blocks = append(blocks, anthropic.NewImageBlockBase64("image/png", q.Image))
	}
	c.messages = append(c.messages, anthropic.NewUserMessage(blocks...))
	if q.Tools && c.tools == nil {
		for _, t := range tools() {
			tool := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: t.properties, Required: t.required}, t.name)
			tool.OfTool.Description = anthropic.String(t.description)
			c.tools = append(c.tools, tool)
		}
	}
}

func (c *messagesTalk) ask(ctx context.Context, q question) (answer, error) {
	c.take(q)
	return c.send(ctx, q)
}

func (c *messagesTalk) give(ctx context.Context, results []string) (answer, error) {
	var blocks []anthropic.ContentBlockParamUnion
	for i, result := range results {
		blocks = append(blocks, anthropic.NewToolResultBlock(c.calls[i].ID, result, false))
	}
	c.messages = append(c.messages, anthropic.NewUserMessage(blocks...))
	return c.send(ctx, question{})
}

func (c *messagesTalk) send(ctx context.Context, q question) (answer, error) {
	params := anthropic.MessageNewParams{
		Model: "claude-any", MaxTokens: 4500, System: c.system, Messages: c.messages, Tools: c.tools,
		Thinking: anthropic.ThinkingConfigParamOfEnabled(1024),
	}
	if q.MaxTokens != 0 {
		params.MaxTokens = int64(q.MaxTokens)
	}
	var whole anthropic.Message
	if c.stream {
		stream := c.client.Messages.NewStreaming(ctx, params)
		defer func() { _ = stream.Close() }()
		started := int64(0)
		left := answer{}
		for pieces := 0; stream.Next(); {
			event := stream.Current()
			if err := whole.Accumulate(event); err != nil {
				return answer{}, err
			}
			switch e := event.AsAny().(type) {
			case anthropic.MessageStartEvent:
				started = e.Message.Usage.InputTokens
			case anthropic.ContentBlockDeltaEvent:
				if e.Delta.Type != "text_delta" {
					break
				}
				left.Text += e.Delta.Text
				if pieces++; q.LeaveAfter > 0 && pieces >= q.LeaveAfter {
					return left, nil
				}
			}
		}
		if err := stream.Err(); err != nil {
			return answer{}, anthropicRefusal(err)
		}
		if whole.Usage.InputTokens != started {
			return answer{}, errors.New("message_start has other input_tokens than the end")
		}
	} else {
		reply, err := c.client.Messages.New(ctx, params)
		if err != nil {
			return answer{}, anthropicRefusal(err)
		}
		whole = *reply
	}
	c.messages = append(c.messages, whole.ToParam())
	out := readMessage(whole)
	c.calls = out.Calls
	return out, nil
}

func readMessage(m anthropic.Message) answer {
	out := answer{Finish: string(m.StopReason), In: int(m.Usage.InputTokens), Out: int(m.Usage.OutputTokens)}
	for _, block := range m.Content {
		switch b := block.AsAny().(type) {
		case anthropic.TextBlock:
			out.Text += b.Text
		case anthropic.ThinkingBlock:
			out.Reasoning += b.Thinking
		case anthropic.ToolUseBlock:
			out.Calls = append(out.Calls, call{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		}
	}
	return out
}

func (c *messagesTalk) count(ctx context.Context, q question) (int, error) {
	asked := messagesTalk{}
	asked.take(q)
	params := anthropic.MessageCountTokensParams{
		Model: "claude-any", Messages: asked.messages,
		System: anthropic.MessageCountTokensParamsSystemUnion{OfTextBlockArray: asked.system},
	}
	for _, t := range asked.tools {
		params.Tools = append(params.Tools, anthropic.MessageCountTokensToolUnionParam{OfTool: t.OfTool})
	}
	reply, err := c.client.Messages.CountTokens(ctx, params)
	if err != nil {
		return 0, anthropicRefusal(err)
	}
	return int(reply.InputTokens), nil
}

func (c *messagesTalk) models(ctx context.Context) ([]string, error) {
	page, err := c.client.Models.List(ctx, anthropic.ModelListParams{})
	if err != nil {
		return nil, anthropicRefusal(err)
	}
	var names []string
	for _, m := range page.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

func anthropicRefusal(err error) error {
	var api *anthropic.Error
	if !errors.As(err, &api) {
		return err
	}
	var body struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal([]byte(api.RawJSON()), &body); err != nil {
		return err
	}
	return &refusal{
		Status: api.StatusCode, Type: string(api.Type()), Message: body.Error.Message,
		RetryAfter: api.Response.Header.Get("Retry-After"),
	}
}
