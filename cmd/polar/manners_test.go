package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// manner is how a harness speaks its wire: where the history stands in its
// requests, and how an answer comes back in the next one.
type manner struct {
	wire    string
	history string
	// path is that of a request to a model.
	path func(model string, stream bool) string
	// back makes of an answer and what its tools returned what is sent back.
	back func(read reading, results []string) []any
}

func manners() map[string]manner {
	fixed := func(path string) func(string, bool) string {
		return func(string, bool) string { return path }
	}
	geminiPath := func(model string, stream bool) string {
		if stream {
			return "/v1beta/models/" + model + ":streamGenerateContent?alt=sse"
		}
		return "/v1beta/models/" + model + ":generateContent"
	}
	chatPath := fixed("/v1/chat/completions")
	return map[string]manner{
		"codex":       {"responses", "input", fixed("/v1/responses"), codexBack},
		"claude-code": {"anthropic", "messages", fixed("/v1/messages?beta=true"), claudeBack},
		"gemini-cli":  {"gemini", "contents", geminiPath, geminiBack},
		"qwen-code":   {"chat", "messages", chatPath, qwenBack},
		"pi":          {"chat", "messages", chatPath, chatBack},
		"opencode":    {"chat", "messages", chatPath, chatBack},
	}
}

// codexBack sends every item back as it came, reasoning and the bytes of
// arguments too, and gives its own items ids.
func codexBack(read reading, results []string) []any {
	var out []any
	for _, item := range read.echo {
		item := item.(obj)
		if str(item, "type") == "function_call_output" {
			item["id"], item["output"] = "fco_"+str(item, "call_id"), results[0]
			results = results[1:]
		}
		out = append(out, item)
	}
	return out
}

// claudeBack sends the blocks back, thinking with its signature too, and the
// results in one message.
func claudeBack(read reading, results []string) []any {
	for _, block := range list(read.echo[len(read.echo)-1], "content") {
		if block := block.(obj); str(block, "type") == "tool_result" {
			block["content"], block["is_error"] = results[0], false
			results = results[1:]
		}
	}
	return read.echo
}

// geminiBack puts pieces of text together, drops thoughts, keeps the signatures
// of calls only and names calls anew.
func geminiBack(read reading, results []string) []any {
	var parts []any
	named := 0
	for _, part := range list(read.echo[0], "parts") {
		part := part.(obj)
		call, _ := part["functionCall"].(obj)
		switch {
		case part["thought"] == true:
			continue
		case call != nil:
			call["id"] = fmt.Sprintf("%s_1794705437044_%d", str(call, "name"), named)
			named++
			parts = append(parts, part)
			continue
		}
		delete(part, "thoughtSignature")
		switch {
		case len(parts) > 0 && str(parts[len(parts)-1], "text") != "":
			last := parts[len(parts)-1].(obj)
			last["text"] = str(last, "text") + str(part, "text")
			continue
		case str(part, "text") == "":
			continue
		}
		parts = append(parts, part)
	}
	out := []any{obj{"role": "model", "parts": parts}}
	if len(read.echo) > 1 {
		for i, part := range list(read.echo[1], "parts") {
			answer := at(part, "functionResponse").(obj)
			answer["id"] = fmt.Sprintf("%s_1794705437044_%d", str(answer, "name"), i)
			answer["response"] = obj{"output": results[i]}
		}
		out = append(out, read.echo[1])
	}
	return out
}

// chatBack spells the arguments anew and sends reasoning back.
func chatBack(read reading, results []string) []any {
	for _, call := range list(read.echo[0], "tool_calls") {
		function := at(call, "function").(obj)
		var spelled bytes.Buffer
		if json.Compact(&spelled, []byte(str(function, "arguments"))) == nil {
			function["arguments"] = spelled.String()
		}
	}
	for i, message := range read.echo[1:] {
		message.(obj)["content"] = results[i]
	}
	return read.echo
}

// qwenBack is chatBack without reasoning, and with lists of blocks.
func qwenBack(read reading, results []string) []any {
	out := chatBack(read, results)
	delete(out[0].(obj), "reasoning_content")
	for _, message := range out[1:] {
		message := message.(obj)
		message["content"] = []any{obj{"type": "text", "text": message["content"]}}
	}
	return out
}
