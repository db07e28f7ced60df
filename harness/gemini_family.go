package harness

import (
	"strings"

	"polar"
)

// geminiFamily are the settings that Gemini CLI and its descendant Qwen Code
// have in common, by polar's names.
type geminiFamily struct {
	// MaxTurns bounds the turns of the session; 0 is no bound.
	MaxTurns int `json:"max_turns"`
	// ContextWindow is how many tokens the CLI believes the model takes; without
	// it, what the engine says.
	ContextWindow int `json:"context_window"`
	// CompressionThreshold is the share of the context window at which the
	// conversation is compressed.
	CompressionThreshold float64 `json:"compression_threshold"`
	// MaxTokens is how many tokens the CLI asks for in an answer.
	MaxTokens int `json:"max_tokens"`
	// Thinking turns it on or off; none leaves it to the CLI.
	Thinking *bool `json:"thinking"`
	// NextSpeakerCheck has the model asked after each answer who speaks next.
	NextSpeakerCheck bool `json:"next_speaker_check"`
	// LoopDetection lets the CLI end a session that it takes to be in a loop.
	LoopDetection bool `json:"loop_detection"`
}

func (c geminiFamily) check() error {
	switch {
	case c.MaxTurns < 0:
		return polar.Invalid("agent.settings.max_turns", "must not be below 0")
	case c.ContextWindow < 0:
		return polar.Invalid("agent.settings.context_window", "must not be below 0")
	case c.MaxTokens < 0:
		return polar.Invalid("agent.settings.max_tokens", "must not be below 0")
	case c.CompressionThreshold < 0 || c.CompressionThreshold > 1:
		return polar.Invalid("agent.settings.compression_threshold", "must be between 0 and 1")
	}
	return nil
}

type geminiMCPServer struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	HTTPURL string   `json:"httpUrl,omitempty"`
	Trust   bool     `json:"trust"`
}

func geminiMCPServers(servers []polar.MCPServer) map[string]geminiMCPServer {
	out := map[string]geminiMCPServer{}
	for _, s := range servers {
		switch s.Transport {
		case mcpStdio:
			out[s.Name] = geminiMCPServer{Command: s.Command, Args: s.Args, Trust: true}
		case mcpSSE:
			out[s.Name] = geminiMCPServer{URL: s.URL, Trust: true}
		case mcpHTTP:
			out[s.Name] = geminiMCPServer{HTTPURL: s.URL, Trust: true}
		}
	}
	return out
}

// isSpecial is set if the CLI would not give the instruction to the model as it
// stands: one that begins with '/' is a command to the CLI, and '@' before the
// name of a file stands for the file. Neither is so in the text of a command.
func isSpecial(instruction string) bool {
	return strings.HasPrefix(instruction, "/") || strings.Contains(instruction, "@")
}
