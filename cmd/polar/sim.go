package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"polar/sim"
)

func simCommand() *cobra.Command {
	var (
		listen, engine, style, policy, model   string
		seed                                   uint64
		successRate, noncanonical, tokensPerSe float64
		ttft                                   time.Duration
		contextLimit                           int
		stripReasoning                         bool
	)
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run a simulated inference server",
		Long: `Run a simulated inference server: the wire of vLLM or SGLang with token ids and
logprobs, a toy tokenizer and a scripted policy instead of a model. It is for
trying things out, tests and load; it learns nothing and knows nothing.`,
		Example: `  polar sim --listen 127.0.0.1:8000
  polar sim --engine sglang --sglang-style v0.5.13
  polar sim --policy my-policy.yaml --noncanonical 0.3 --tokens-per-second 50`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := sim.Defaults()
			if policy != "" {
				loaded, err := sim.LoadFile(policy)
				if err != nil {
					return &usageError{err: err}
				}
				cfg = loaded
			}
			set := cmd.Flags().Changed
			if set("engine") {
				cfg.Engine = engine
			}
			if set("sglang-style") {
				cfg.SGLangStyle = style
			}
			if set("seed") {
				cfg.Seed = seed
			}
			if set("model") {
				cfg.Model = model
			}
			if set("success-rate") {
				cfg.SuccessRate = successRate
			}
			if set("noncanonical") {
				cfg.Noncanonical = noncanonical
			}
			if set("strip-reasoning") {
				cfg.StripReasoning = stripReasoning
			}
			if set("ttft") {
				cfg.TTFT = ttft
			}
			if set("tokens-per-second") {
				cfg.TokensPerSecond = tokensPerSe
			}
			if set("context-limit") {
				cfg.ContextLimit = contextLimit
			}
			server, err := sim.New(cfg)
			if err != nil {
				return &usageError{err: err}
			}
			l, err := listenOn(cmd.Context(), listen)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "simulated inference server (%s wire) on http://%s, model %s\n", cfg.Engine, l.Addr(), cfg.Model)
			return serveHTTP(cmd.Context(), l, server)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8000", "address to listen on")
	f.StringVar(&engine, "engine", "vllm", "wire to speak: vllm or sglang")
	f.StringVar(&style, "sglang-style", "v0.5.18", "version whose way of giving token ids is followed: v0.5.10, v0.5.12, v0.5.13, v0.5.17, v0.5.18 or next")
	f.StringVar(&policy, "policy", "", "YAML file of rules and settings (default: an agent that solves the demo tasks)")
	f.StringVar(&model, "model", "sim", "name of the model served")
	f.Uint64Var(&seed, "seed", 1, "seed of everything that is drawn")
	f.Float64Var(&successRate, "success-rate", 0.7, "share of demo tasks the default policy solves")
	f.Float64Var(&noncanonical, "noncanonical", 0, "share of tokens sampled other than the tokenizer would write them")
	f.BoolVar(&stripReasoning, "strip-reasoning", false, "leave reasoning out of rendered history, as Qwen3's template does")
	f.DurationVar(&ttft, "ttft", 0, "time to the first token")
	f.Float64Var(&tokensPerSe, "tokens-per-second", 0, "speed of each stream; 0 is as fast as it can")
	f.IntVar(&contextLimit, "context-limit", 131072, "longest context in tokens; 0 is no limit")
	return cmd
}

// listenOn opens a port and says plainly when it is taken.
func listenOn(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, listenError(address, err)
	}
	return l, nil
}
