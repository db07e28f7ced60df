package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

func newOpenAI(to endpoint) openai.Client {
	return openai.NewClient(option.WithBaseURL(to.URL+"/v1"), option.WithAPIKey(to.Key), option.WithMaxRetries(to.Retries))
}

func openAIChat() client {
	return client{name: "openai-go chat", wire: "chat", open: func(_ *testing.T, to endpoint) conversation {
		return &chatTalk{client: newOpenAI(to), stream: to.Stream}
	}}
}

// chatTalk talks Chat Completions with openai-go.
type chatTalk struct {
	client   openai.Client
	stream   bool
	messages []openai.ChatCompletionMessageParamUnion
	tools    []openai.ChatCompletionToolUnionParam
	calls    []call
}

func (c *chatTalk) ask(ctx context.Context, q question) (answer, error) {
	if q.System != "" {
		c.messages = append(c.messages, openai.SystemMessage(q.System))
	}
	if q.Image == "" {
		c.messages = append(c.messages, openai.UserMessage(q.Text))
	} else {
		c.messages = append(c.messages, openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			openai.TextContentPart(q.Text),
			openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64," + q.Image}),
		}))
	}
	if q.Tools {
		for _, t := range tools() {
			c.tools = append(c.tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
				Name: t.name, Description: openai.String(t.description), Parameters: t.schema(),
			}))
		}
	}
	return c.send(ctx, q)
}

func (c *chatTalk) give(ctx context.Context, results []string) (answer, error) {
	for i, result := range results {
		c.messages = append(c.messages, openai.ToolMessage(result, c.calls[i].ID))
	}
	return c.send(ctx, question{})
}

func (c *chatTalk) send(ctx context.Context, q question) (answer, error) {
	params := openai.ChatCompletionNewParams{Model: "gpt-any", Messages: c.messages, Tools: c.tools}
	if q.MaxTokens != 0 {
		params.MaxCompletionTokens = openai.Int(int64(q.MaxTokens))
	}
	var whole openai.ChatCompletion
	var out answer
	if c.stream {
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := c.client.Chat.Completions.NewStreaming(ctx, params)
		defer func() { _ = stream.Close() }()
		var acc openai.ChatCompletionAccumulator
		pieces := 0
		for stream.Next() {
			chunk := stream.Current()
			if !acc.AddChunk(chunk) {
				return answer{}, errors.New("the accumulator refused a chunk")
			}
			for _, choice := range chunk.Choices {
				out.Reasoning += extraText(choice.Delta.JSON.ExtraFields["reasoning_content"].Raw())
				if choice.Delta.Content != "" {
					pieces++
				}
			}
			if q.LeaveAfter > 0 && pieces >= q.LeaveAfter {
				return answer{Text: acc.Choices[0].Message.Content}, nil
			}
		}
		if err := stream.Err(); err != nil {
			return answer{}, openAIRefusal(err)
		}
		whole = acc.ChatCompletion
	} else {
		reply, err := c.client.Chat.Completions.New(ctx, params)
		if err != nil {
			return answer{}, openAIRefusal(err)
		}
		whole = *reply
		out.Reasoning = extraText(whole.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw())
	}
	message := whole.Choices[0].Message
	out.Text, out.Finish = message.Content, whole.Choices[0].FinishReason
	out.In, out.Out = int(whole.Usage.PromptTokens), int(whole.Usage.CompletionTokens)
	for _, tc := range message.ToolCalls {
		out.Calls = append(out.Calls, call{ID: tc.ID, Name: tc.Function.Name, Arguments: tc.Function.Arguments})
	}
	c.calls = out.Calls
	back := message.ToAssistantMessageParam()
	if out.Reasoning != "" { // OpenAI has no field for it; who wants it sends it like this
		back.SetExtraFields(map[string]any{"reasoning_content": out.Reasoning})
	}
	c.messages = append(c.messages, openai.ChatCompletionMessageParamUnion{OfAssistant: &back})
	return out, nil
}

func (*chatTalk) count(context.Context, question) (int, error) { return 0, errors.ErrUnsupported }

func (c *chatTalk) models(ctx context.Context) ([]string, error) { return openAIModels(ctx, c.client) }

func openAIModels(ctx context.Context, client openai.Client) ([]string, error) {
	page, err := client.Models.List(ctx)
	if err != nil {
		return nil, openAIRefusal(err)
	}
	var names []string
	for _, m := range page.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

// extraText is a field that the client has no type for.
func extraText(raw string) string {
	var s string
	if raw != "" && json.Unmarshal([]byte(raw), &s) != nil {
		return "not a string: " + raw
	}
	return s
}

func openAIRefusal(err error) error {
	var api *openai.Error
	if !errors.As(err, &api) {
		return err
	}
	return &refusal{
		Status: api.StatusCode, Type: api.Type, Code: api.Code, Message: strings.TrimSpace(api.Message),
		RetryAfter: api.Response.Header.Get("Retry-After"),
	}
}
