package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"polar/agent"
)

func agentCommand() *cobra.Command {
	var cfg agent.Config
	var noStream bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the built-in agent (the mini harness)",
		Long: `Run a small agent: Chat Completions with one bash tool, until the model answers
without calling it or the step limit is reached. It is the mini harness, which
needs nothing installed in a sandbox, and takes what it is not told from
OPENAI_BASE_URL, OPENAI_API_KEY, POLAR_MODEL and POLAR_INSTRUCTION.`,
		Example: `  OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=any \
    polar agent --instruction "Create hello.txt containing hello"`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			fromEnv(&cfg.BaseURL, "OPENAI_BASE_URL")
			fromEnv(&cfg.APIKey, "OPENAI_API_KEY")
			fromEnv(&cfg.Model, "POLAR_MODEL")
			fromEnv(&cfg.Instruction, "POLAR_INSTRUCTION")
			switch {
			case cfg.BaseURL == "":
				return usagef("no endpoint: give --base-url or set OPENAI_BASE_URL")
			case cfg.Instruction == "":
				return usagef("no instruction: give --instruction or set POLAR_INSTRUCTION")
			}
			cfg.Stream = !noStream
			cfg.Env = os.Environ()
			cfg.Log = cmd.OutOrStdout()
			if dir := os.Getenv("AGENT_LOG_DIR"); dir != "" {
				f, err := os.Create(filepath.Join(dir, "steps.jsonl"))
				if err != nil {
					return err
				}
				defer f.Close() //nolint:errcheck // the log is best effort once the agent is done
				cfg.Log = f
			}
			_, err := agent.Run(cmd.Context(), cfg)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.BaseURL, "base-url", "", "OpenAI-compatible endpoint, with /v1")
	f.StringVar(&cfg.APIKey, "api-key", "", "its key")
	f.StringVar(&cfg.Model, "model", "", "model to ask for")
	f.StringVar(&cfg.Instruction, "instruction", "", "what to do")
	f.StringVar(&cfg.Workdir, "workdir", "", "folder to work in (default: this one)")
	f.IntVar(&cfg.MaxSteps, "max-steps", 20, "most model calls before it gives up")
	f.DurationVar(&cfg.CommandTimeout, "command-timeout", 2*time.Minute, "most time for one command")
	f.BoolVar(&noStream, "no-stream", false, "ask for whole answers")
	return cmd
}

func fromEnv(value *string, name string) {
	if *value == "" {
		*value = os.Getenv(name)
	}
}
