package clients_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/genai"
)

func googleGenAI() client {
	return client{name: "genai", wire: "gemini", open: func(t *testing.T, to endpoint) conversation {
		t.Helper()
		client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
			APIKey: to.Key, Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: to.URL},
		})
		if err != nil {
			t.Fatal(err)
		}
		return &geminiTalk{client: client, stream: to.Stream, config: &genai.GenerateContentConfig{
			ThinkingConfig: &genai.ThinkingConfig{IncludeThoughts: true},
		}}
	}}
}

const geminiModel = "gemini-any"

// geminiTalk talks to generateContent with genai.
type geminiTalk struct {
	client   *genai.Client
	stream   bool
	config   *genai.GenerateContentConfig
	contents []*genai.Content
	called   []*genai.FunctionCall
}

func (c *geminiTalk) take(q question) error {
	if q.System != "" {
		c.config.SystemInstruction = genai.NewContentFromText(q.System, genai.RoleUser)
	}
	parts := []*genai.Part{genai.NewPartFromText(q.Text)}
	if q.Image != "" {
		data, err := base64.StdEncoding.DecodeString(q.Image)
		if err != nil {
			return err
		}
		parts = append(parts, genai.NewPartFromBytes(data, "image/png"))
	}
	c.contents = append(c.contents, genai.NewContentFromParts(parts, genai.RoleUser))
	if q.Tools && c.config.Tools == nil {
		var list []*genai.FunctionDeclaration
		for _, t := range tools() {
			list = append(list, &genai.FunctionDeclaration{Name: t.name, Description: t.description, ParametersJsonSchema: t.schema()})
		}
		c.config.Tools = []*genai.Tool{{FunctionDeclarations: list}}
	}
	c.config.MaxOutputTokens = int32(q.MaxTokens)
	return nil
}

func (c *geminiTalk) ask(ctx context.Context, q question) (answer, error) {
	if err := c.take(q); err != nil {
		return answer{}, err
	}
	return c.send(ctx, q)
}

func (c *geminiTalk) give(ctx context.Context, results []string) (answer, error) {
	var parts []*genai.Part
	for i, result := range results {
		part := genai.NewPartFromFunctionResponse(c.called[i].Name, map[string]any{"output": result})
		part.FunctionResponse.ID = c.called[i].ID
		parts = append(parts, part)
	}
	c.contents = append(c.contents, genai.NewContentFromParts(parts, genai.RoleUser))
	return c.send(ctx, question{})
}

func (c *geminiTalk) send(ctx context.Context, q question) (answer, error) {
	var out answer
	var model []*genai.Part
	c.called = nil
	if c.stream {
		for chunk, err := range c.client.Models.GenerateContentStream(ctx, geminiModel, c.contents, c.config) {
			if err != nil {
				return answer{}, genaiRefusal(err)
			}
			model = append(model, c.read(chunk, &out)...)
			if q.LeaveAfter > 0 && len(model) >= q.LeaveAfter {
				return out, nil
			}
		}
	} else {
		reply, err := c.client.Models.GenerateContent(ctx, geminiModel, c.contents, c.config)
		if err != nil {
			return answer{}, genaiRefusal(err)
		}
		model = c.read(reply, &out)
	}
	c.contents = append(c.contents, genai.NewContentFromParts(model, genai.RoleModel))
	return out, nil
}

// read adds a response or a piece of one to what came, and returns its parts.
func (c *geminiTalk) read(r *genai.GenerateContentResponse, out *answer) []*genai.Part {
	if u := r.UsageMetadata; u != nil {
		out.In, out.Out = int(u.PromptTokenCount), int(u.CandidatesTokenCount+u.ThoughtsTokenCount)
	}
	var parts []*genai.Part
	for _, candidate := range r.Candidates {
		if candidate.FinishReason != "" {
			out.Finish = string(candidate.FinishReason)
		}
		if candidate.Content == nil {
			continue
		}
		for _, p := range candidate.Content.Parts {
			parts = append(parts, p)
			switch {
			case p.FunctionCall != nil:
				arguments, err := json.Marshal(p.FunctionCall.Args)
				if err != nil {
					arguments = []byte(err.Error())
				}
				c.called = append(c.called, p.FunctionCall)
				out.Calls = append(out.Calls, call{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Arguments: string(arguments)})
			case p.Thought:
				out.Reasoning += p.Text
			default:
				out.Text += p.Text
			}
		}
	}
	return parts
}

// count counts a question without a system prompt and tools: the client refuses
// to send those for the Gemini API.
func (c *geminiTalk) count(ctx context.Context, q question) (int, error) {
	reply, err := c.client.Models.CountTokens(ctx, geminiModel, genai.Text(q.Text), nil)
	if err != nil {
		return 0, genaiRefusal(err)
	}
	return int(reply.TotalTokens), nil
}

func (c *geminiTalk) models(ctx context.Context) ([]string, error) {
	page, err := c.client.Models.List(ctx, nil)
	if err != nil {
		return nil, genaiRefusal(err)
	}
	var names []string
	for _, m := range page.Items {
		names = append(names, strings.TrimPrefix(m.Name, "models/"))
	}
	return names, nil
}

func genaiRefusal(err error) error {
	var api genai.APIError
	if !errors.As(err, &api) {
		return err
	}
	return &refusal{Status: api.Code, Type: api.Status, Message: api.Message}
}
