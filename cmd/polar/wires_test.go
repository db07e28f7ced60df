package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// wire is how a harness speaks one format: what it sends and how it reads.
type wire struct {
	name string
	// request makes the path and the body of a call with that history.
	request func(history []any, stream bool) (path string, body any)
	// user is an element of a history with a user's text.
	user func(text string) any
	// read reads an answer, streamed or not.
	read func(docs []map[string]any, stream bool) reading
}

// reading is an answer and what the harness adds to its history for it: the
// answer itself, and a result for each tool it calls.
type reading struct {
	said
	echo []any
}

type obj = map[string]any

// matrixWires lists the formats. To add one, add a line.
func matrixWires() []wire {
	return []wire{
		{"chat", chatRequest, chatUser, readChat},
		{"responses", responsesRequest, chatUser, readResponses},
		{"anthropic", anthropicRequest, chatUser, readAnthropic},
		{"gemini", geminiRequest, geminiUser, readGemini},
	}
}

// toolNames are what every call offers.
var toolNames = []string{"look", "list"}

func schema() obj {
	return obj{"type": "object", "properties": obj{"at": obj{"type": "string"}, "depth": obj{"type": "integer"}}}
}

func eachTool(declare func(name string) any) []any {
	var out []any
	for _, name := range toolNames {
		out = append(out, declare(name))
	}
	return out
}

func chatUser(text string) any { return obj{"role": "user", "content": text} }

// at goes down into a document by keys and indexes; nil where there is nothing.
func at(doc any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := doc.(obj)
			doc = o[step]
		case int:
			list, _ := doc.([]any)
			if step >= len(list) {
				return nil
			}
			doc = list[step]
		}
	}
	return doc
}

func str(doc any, path ...any) string {
	s, _ := at(doc, path...).(string)
	return s
}

func list(doc any, path ...any) []any {
	l, _ := at(doc, path...).([]any)
	return l
}

// written is the JSON of a value without escapes that JSON does not need.
func written(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // it was read from JSON
	return strings.TrimSpace(b.String())
}

func chatRequest(history []any, stream bool) (string, any) {
	tools := eachTool(func(name string) any {
		return obj{"type": "function", "function": obj{"name": name, "parameters": schema()}}
	})
	return "/v1/chat/completions", obj{"model": "m", "messages": history, "tools": tools, "stream": stream}
}

func readChat(docs []map[string]any, stream bool) reading {
	var out reading
	var ids []string
	part := "message"
	if stream {
		part = "delta"
	}
	for _, doc := range docs {
		piece := at(doc, "choices", 0, part)
		out.Text += str(piece, "content")
		out.Reasoning += str(piece, "reasoning_content")
		for i, call := range list(piece, "tool_calls") {
			if index, ok := at(call, "index").(float64); ok {
				i = int(index)
			}
			if i == len(out.Calls) {
				out.Calls, ids = append(out.Calls, saidCall{}), append(ids, "")
			}
			ids[i] += str(call, "id")
			out.Calls[i].Name += str(call, "function", "name")
			out.Calls[i].Arguments += str(call, "function", "arguments")
		}
	}
	answer := obj{"role": "assistant", "content": out.Text}
	if out.Reasoning != "" {
		answer["reasoning_content"] = out.Reasoning
	}
	var calls []any
	for i, call := range out.Calls {
		calls = append(calls, obj{"id": ids[i], "type": "function", "function": obj{"name": call.Name, "arguments": call.Arguments}})
	}
	if calls != nil {
		answer["tool_calls"] = calls
	}
	out.echo = []any{answer}
	for _, id := range ids {
		out.echo = append(out.echo, obj{"role": "tool", "tool_call_id": id, "content": "found"})
	}
	return out
}

func responsesRequest(history []any, stream bool) (string, any) {
	tools := eachTool(func(name string) any { return obj{"type": "function", "name": name, "parameters": schema()} })
	return "/v1/responses", obj{
		"model": "m", "input": history, "tools": tools, "stream": stream, "store": false,
		"include": []string{"reasoning.encrypted_content"}, "reasoning": obj{"summary": "auto"},
	}
}

// readResponses reads a stream by its deltas; what they add up to must be what
// the last event says as a whole.
func readResponses(docs []map[string]any, stream bool) reading {
	whole := any(docs[0])
	var deltas said
	for _, doc := range docs {
		switch delta := str(doc, "delta"); str(doc, "type") {
		case "response.output_text.delta":
			deltas.Text += delta
		case "response.reasoning_summary_text.delta":
			deltas.Reasoning += delta
		case "response.output_item.added":
			if str(doc, "item", "type") == "function_call" {
				deltas.Calls = append(deltas.Calls, saidCall{Name: str(doc, "item", "name")})
			}
		case "response.function_call_arguments.delta":
			deltas.Calls[len(deltas.Calls)-1].Arguments += delta
		case "response.completed":
			whole = at(doc, "response")
		}
	}
	var out reading
	var results []any
	for _, item := range list(whole, "output") {
		out.echo = append(out.echo, item)
		switch str(item, "type") {
		case "message":
			out.Text += str(item, "content", 0, "text")
		case "reasoning":
			out.Reasoning += str(item, "summary", 0, "text")
		case "function_call":
			out.Calls = append(out.Calls, saidCall{str(item, "name"), str(item, "arguments")})
			results = append(results, obj{"type": "function_call_output", "call_id": str(item, "call_id"), "output": "found"})
		}
	}
	if stream && fmt.Sprint(deltas) != fmt.Sprint(out.said) {
		out.Text += fmt.Sprintf(" BUT STREAMED %+v", deltas)
	}
	out.echo = append(out.echo, results...)
	return out
}

func anthropicRequest(history []any, stream bool) (string, any) {
	tools := eachTool(func(name string) any { return obj{"name": name, "input_schema": schema()} })
	return "/v1/messages?beta=true", obj{
		"model": "m", "max_tokens": 1000, "messages": history, "tools": tools, "stream": stream,
		"thinking": obj{"type": "enabled", "budget_tokens": 500},
	}
}

func readAnthropic(docs []map[string]any, stream bool) reading {
	blocks := list(docs[0], "content")
	if stream {
		blocks = anthropicBlocks(docs)
	}
	var out reading
	var results []any
	for _, block := range blocks {
		switch str(block, "type") {
		case "text":
			out.Text += str(block, "text")
		case "thinking":
			out.Reasoning += str(block, "thinking")
		case "tool_use":
			out.Calls = append(out.Calls, saidCall{str(block, "name"), written(at(block, "input"))})
			results = append(results, obj{"type": "tool_result", "tool_use_id": str(block, "id"), "content": "found"})
		}
	}
	out.echo = []any{obj{"role": "assistant", "content": blocks}}
	if results != nil {
		out.echo = append(out.echo, obj{"role": "user", "content": results})
	}
	return out
}

// anthropicBlocks puts the blocks of a stream together.
func anthropicBlocks(docs []map[string]any) []any {
	var blocks []any
	input := ""
	for _, doc := range docs {
		switch str(doc, "type") {
		case "content_block_start":
			blocks, input = append(blocks, at(doc, "content_block")), ""
		case "content_block_delta":
			block := blocks[len(blocks)-1].(obj)
			for _, field := range []string{"text", "thinking", "signature"} {
				if piece := str(doc, "delta", field); piece != "" {
					block[field] = str(block, field) + piece
				}
			}
			input += str(doc, "delta", "partial_json")
		case "content_block_stop":
			if input != "" {
				blocks[len(blocks)-1].(obj)["input"] = json.RawMessage(input)
			}
		}
	}
	return blocks
}

func geminiUser(text string) any {
	return obj{"role": "user", "parts": []any{obj{"text": text}}}
}

func geminiRequest(history []any, stream bool) (string, any) {
	path := "/v1beta/models/m:generateContent"
	if stream {
		path = "/v1beta/models/m:streamGenerateContent?alt=sse"
	}
	declarations := eachTool(func(name string) any { return obj{"name": name, "parametersJsonSchema": schema()} })
	return path, obj{
		"contents": history, "tools": []any{obj{"functionDeclarations": declarations}},
		"generationConfig": obj{"thinkingConfig": obj{"includeThoughts": true}},
	}
}

func readGemini(docs []map[string]any, _ bool) reading {
	var out reading
	var parts, results []any
	for _, doc := range docs {
		for _, part := range list(doc, "candidates", 0, "content", "parts") {
			parts = append(parts, part)
			call := at(part, "functionCall")
			switch {
			case call != nil:
				out.Calls = append(out.Calls, saidCall{str(call, "name"), written(at(call, "args"))})
				results = append(results, obj{"functionResponse": obj{"id": str(call, "id"), "name": str(call, "name"), "response": obj{"output": "found"}}})
			case at(part, "thought") == true:
				out.Reasoning += str(part, "text")
			default:
				out.Text += str(part, "text")
			}
		}
	}
	out.echo = []any{obj{"role": "model", "parts": parts}}
	if results != nil {
		out.echo = append(out.echo, obj{"role": "user", "parts": results})
	}
	return out
}
