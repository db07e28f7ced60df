package main

import (
	"polar"
	"polar/backend"
	"polar/evaluate"
	"polar/gateway"
	"polar/harness"
	"polar/protocol/anthropic"
	"polar/protocol/chat"
	"polar/protocol/gemini"
	"polar/protocol/responses"
	"polar/sandbox"
	"polar/sandbox/local"
	"polar/trajectory"
)

// plugins are everything of which there can be more than one kind.
type plugins struct {
	protocols  []gateway.Protocol
	engines    polar.Registry[backend.Engine]
	drivers    polar.Registry[sandbox.Driver]
	clis       []harness.CLI
	harnesses  polar.Registry[harness.Preset]
	builders   polar.Registry[trajectory.Builder]
	evaluators polar.Registry[evaluate.Evaluator]
}

// builtin lists the plug-ins that come with the service. To add one, add a
// line. binary is the path of polar itself, which the mini harness runs; find
// has the CLIs that are installed.
func builtin(binary string, find harness.Find) plugins {
	p := plugins{
		clis: []harness.CLI{
			harness.Opencode(),
			harness.ClaudeCode(),
			harness.Codex(),
			harness.MiniSWEAgent(),
			harness.OpenHandsSDK(),
			harness.GeminiCLI(),
			harness.Pi(),
			harness.QwenCode(),
		},
		protocols: []gateway.Protocol{chat.Protocol{}, anthropic.Protocol{}, gemini.Protocol{}, responses.Protocol{}},
		engines: polar.Registry[backend.Engine]{
			"openai": polar.Opener(backend.NewOpenAI),
			"sglang": polar.Opener(backend.NewSGLang),
			"vllm":   polar.Opener(backend.NewVLLM),
		},
		drivers: polar.Registry[sandbox.Driver]{
			"local": polar.Opener(local.New),
		},
		harnesses: polar.Registry[harness.Preset]{
			"mini":  polar.Opener(harness.MiniWith(binary)),
			"shell": polar.Opener(harness.Shell),
		},
		builders: polar.Registry[trajectory.Builder]{
			"per_request":    polar.Opener(trajectory.PerRequest),
			"prefix_merging": polar.Opener(trajectory.PrefixMerging),
		},
		evaluators: polar.Registry[evaluate.Evaluator]{
			"command":           polar.Opener(evaluate.Command),
			"session_completed": polar.Opener(evaluate.SessionCompleted),
		},
	}
	for _, c := range p.clis {
		p.harnesses[c.Name] = c.Opener(find)
	}
	return p
}
