package clients_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

func openAIResponses() client {
	return client{name: "openai-go responses", wire: "responses", open: func(_ *testing.T, to endpoint) conversation {
		return &responsesTalk{client: newOpenAI(to), stream: to.Stream, byName: to.Previous}
	}}
}

// responsesTalk talks Responses with openai-go. All items go back, reasoning
// encrypted, as Codex does it, unless the earlier response is named.
type responsesTalk struct {
	client       openai.Client
	stream       bool
	byName       bool
	previous     param.Opt[string]
	instructions param.Opt[string]
	items        []responses.ResponseInputItemUnionParam
	tools        []responses.ToolUnionParam
	calls        []call
}

func (c *responsesTalk) take(q question) {
	if q.System != "" {
		c.instructions = openai.String(q.System)
	}
	if q.Image == "" {
		c.items = append(c.items, responses.ResponseInputItemParamOfMessage(q.Text, responses.EasyInputMessageRoleUser))
	} else {
		c.items = append(c.items, responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{
			responses.ResponseInputContentParamOfInputText(q.Text),
			{OfInputImage: &responses.ResponseInputImageParam{
				ImageURL: openai.String("data:image/png;base64," + q.Image), Detail: responses.ResponseInputImageDetailAuto,
			}},
		}, responses.EasyInputMessageRoleUser))
	}
	if q.Tools && c.tools == nil {
		for _, t := range tools() {
			tool := responses.ToolParamOfFunction(t.name, t.schema(), false)
			tool.OfFunction.Description = openai.String(t.description)
			c.tools = append(c.tools, tool)
		}
	}
}

func (c *responsesTalk) ask(ctx context.Context, q question) (answer, error) {
	c.take(q)
	return c.send(ctx, q)
}

func (c *responsesTalk) give(ctx context.Context, results []string) (answer, error) {
	for i, result := range results {
		item := responses.ResponseInputItemParamOfFunctionCallOutput(result)
		item.OfFunctionCallOutput.CallID = openai.String(c.calls[i].ID)
		c.items = append(c.items, item)
	}
	return c.send(ctx, question{})
}

func (c *responsesTalk) send(ctx context.Context, q question) (answer, error) {
	params := responses.ResponseNewParams{
		Model: "gpt-any", Instructions: c.instructions, Tools: c.tools,
		Input:   responses.ResponseNewParamsInputUnion{OfInputItemList: c.items},
		Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent},
		Store:   openai.Bool(c.byName), PreviousResponseID: c.previous,
	}
	if q.MaxTokens != 0 {
		params.MaxOutputTokens = openai.Int(int64(q.MaxTokens))
	}
	if !c.stream {
		reply, err := c.client.Responses.New(ctx, params)
		if err != nil {
			return answer{}, openAIRefusal(err)
		}
		return c.read(*reply)
	}
	stream := c.client.Responses.NewStreaming(ctx, params)
	defer func() { _ = stream.Close() }()
	var deltas answer
	var last responses.Response
	next := int64(0)
	for pieces := 0; stream.Next(); {
		event := stream.Current()
		if event.SequenceNumber != next {
			return answer{}, fmt.Errorf("event %s has the sequence number %d, want %d", event.Type, event.SequenceNumber, next)
		}
		next++
		switch e := event.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			deltas.Text += e.Delta
			if pieces++; q.LeaveAfter > 0 && pieces >= q.LeaveAfter {
				return deltas, nil
			}
		case responses.ResponseReasoningTextDeltaEvent:
			deltas.Reasoning += e.Delta
		case responses.ResponseReasoningSummaryTextDeltaEvent:
			deltas.Reasoning += e.Delta
		case responses.ResponseCompletedEvent:
			last = e.Response
		case responses.ResponseIncompleteEvent:
			last = e.Response
		case responses.ResponseFailedEvent:
			return answer{}, &refusal{Code: string(e.Response.Error.Code), Message: e.Response.Error.Message}
		case responses.ResponseErrorEvent:
			return answer{}, &refusal{Code: e.Code, Message: e.Message}
		}
	}
	if err := stream.Err(); err != nil {
		return answer{}, openAIRefusal(err)
	}
	out, err := c.read(last)
	if err == nil && (out.Text != deltas.Text || out.Reasoning != deltas.Reasoning) {
		err = fmt.Errorf("the pieces of the stream are %q and %q, its end says %q and %q", deltas.Reasoning, deltas.Text, out.Reasoning, out.Text)
	}
	return out, err
}

// read takes a response in and keeps its items, to be sent back.
func (c *responsesTalk) read(r responses.Response) (answer, error) {
	if r.ID == "" {
		return answer{}, errors.New("no response came")
	}
	out := answer{Text: r.OutputText(), Finish: string(r.Status), In: int(r.Usage.InputTokens), Out: int(r.Usage.OutputTokens)}
	for _, item := range r.Output {
		var back responses.ResponseInputItemUnionParam
		switch item := item.AsAny().(type) {
		case responses.ResponseOutputMessage:
			p := item.ToParam()
			back.OfOutputMessage = &p
		case responses.ResponseFunctionToolCall:
			out.Calls = append(out.Calls, call{ID: item.CallID, Name: item.Name, Arguments: item.Arguments})
			p := item.ToParam()
			back.OfFunctionCall = &p
		case responses.ResponseReasoningItem:
			for _, s := range item.Summary {
				out.Reasoning += s.Text
			}
			if len(item.Summary) == 0 {
				for _, s := range item.Content {
					out.Reasoning += s.Text
				}
			}
			p := item.ToParam()
			back.OfReasoning = &p
		default:
			return answer{}, fmt.Errorf("an item of the type %T came", item)
		}
		c.items = append(c.items, back)
	}
	c.calls = out.Calls
	if c.byName {
		c.items, c.previous = nil, openai.String(r.ID)
	}
	return out, nil
}

func (c *responsesTalk) count(ctx context.Context, q question) (int, error) {
	asked := responsesTalk{}
	asked.take(q)
	reply, err := c.client.Responses.InputTokens.Count(ctx, responses.InputTokenCountParams{
		Model: openai.String("gpt-any"), Instructions: asked.instructions, Tools: asked.tools,
		Input: responses.InputTokenCountParamsInputUnion{OfResponseInputItemArray: asked.items},
	})
	if err != nil {
		return 0, openAIRefusal(err)
	}
	return int(reply.InputTokens), nil
}

func (c *responsesTalk) models(ctx context.Context) ([]string, error) {
	return openAIModels(ctx, c.client)
}
