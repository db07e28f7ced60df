package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var (
		config, dataDir, listen, gatewayListen string
		engine, model, logLevel, harnessDir    string
		engineURLs                             []string
		runWorkers                             int
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the rollout server and one gateway node in one process",
		Long: `Run the rollout server and one gateway node in one process. State lives in the
data folder; a server that was killed goes on where it was when it is started
again on the same folder.`,
		Example: `  polar serve --engine-url http://127.0.0.1:8000
  polar serve -c topology.yaml --data-dir /var/lib/polar`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := loadTopology(config)
			if err != nil {
				return err
			}
			if len(t.Gateway.Nodes) > 1 {
				return usagef("%s: gateway.nodes: polar serve runs one node, the file names %d", config, len(t.Gateway.Nodes))
			}
			n := t.Gateway.Nodes[0]
			set := cmd.Flags().Changed
			if set("data-dir") {
				t.DataDir = dataDir
			}
			if set("harness-dir") {
				t.Gateway.HarnessDir = harnessDir
			}
			if set("engine") {
				n.Inference.Engine = engine
			}
			if set("engine-url") {
				n.Inference.setURLs(engineURLs)
			}
			if set("model") {
				n.ModelServed = model
			}
			if set("run-workers") {
				if runWorkers < 1 {
					return usagef("--run-workers is %d, must be 1 or more", runWorkers)
				}
				n.MaxRun = runWorkers
			}
			cfg, err := decide(t, n)
			if err != nil {
				return err
			}
			if set("listen") {
				cfg.listen = listen
			}
			if set("gateway-listen") {
				cfg.gatewayListen = gatewayListen
			}
			if err := guard(cfg); err != nil {
				return err
			}
			var level slog.Level
			if err := level.UnmarshalText([]byte(logLevel)); err != nil {
				return usagef("--log-level %q is not known; known: debug, info, warn, error", logLevel)
			}
			cfg.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			for _, w := range t.warnings() {
				cfg.log.Warn("config", "file", config, "note", w)
			}
			s, err := openService(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "rollout server  %s\ngateway         %s\nengine          %s\ndata            %s\n",
				s.rolloutURL(), s.gatewayURL(), n.Inference.describe(), t.DataDir)
			return s.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&config, "config", "c", "", "topology.yaml")
	f.StringVar(&dataDir, "data-dir", "./polar-data", "where tasks, calls and results are kept")
	f.StringVar(&listen, "listen", "127.0.0.1:8080", "address of the rollout server")
	f.StringVar(&gatewayListen, "gateway-listen", "127.0.0.1:8100", "address of the gateway")
	f.StringVar(&engine, "engine", "vllm", "kind of inference engine: "+engineKinds())
	f.StringArrayVar(&engineURLs, "engine-url", nil, "where an engine is; may be repeated (default http://127.0.0.1:8000)")
	f.StringVar(&model, "model", "", "model name every call is made with (default: what the harness asks for)")
	f.IntVar(&runWorkers, "run-workers", 2, "harnesses that run at once")
	f.StringVar(&harnessDir, "harness-dir", defaultHarnessDir(), "where polar harness install puts CLIs")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// decide fills in what a topology leaves to the machine it runs on.
func decide(t topology, n nodeSection) (serviceConfig, error) {
	if n.ID == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "node"
		}
		n.ID = host
	}
	token, err := t.token()
	if err != nil {
		return serviceConfig{}, err
	}
	binary, err := os.Executable()
	if err != nil {
		return serviceConfig{}, fmt.Errorf("find the polar binary: %w", err)
	}
	if t.Gateway.HarnessDir == "" {
		t.Gateway.HarnessDir = defaultHarnessDir()
	}
	cfg := serviceConfig{
		topology: t, node: n, token: token, binary: binary, path: os.Getenv("PATH"),
		listen:        net.JoinHostPort(t.Rollout.Host, strconv.Itoa(t.Rollout.Port)),
		gatewayListen: net.JoinHostPort(n.Host, strconv.Itoa(n.Port)),
	}
	return cfg, nil
}

// guard refuses to open control routes to a network without a token.
func guard(cfg serviceConfig) error {
	for _, address := range []string{cfg.listen, cfg.gatewayListen} {
		if cfg.token == "" && !cfg.Insecure && !isLoopback(address) {
			return usagef("%s is not a loopback address: set control_token or control_token_file in the topology, or write insecure: true", address)
		}
	}
	return nil
}
