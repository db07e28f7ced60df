package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"polar"
	"polar/backend"
	"polar/calllog"
	"polar/coordinator"
	"polar/gateway"
	"polar/kit"
	"polar/llm"
	"polar/node"
	"polar/sandbox"
	"polar/store"
	"polar/trajectory"
)

// service is the rollout server and one gateway node in one process. Opening
// it takes what can be refused (locks, ports, files); Run does the work.
type service struct {
	cfg     serviceConfig
	log     *slog.Logger
	lock    *store.FolderLock
	store   *store.Store
	calls   *calllog.Log
	engine  backend.Engine
	gateway *gateway.Gateway
	server  *coordinator.Coordinator
	node    *node.Node
	drivers map[string]sandbox.Driver
	// window is the engine's context window, once it has said so.
	window atomic.Int64

	rolloutListener, gatewayListener net.Listener
}

// serviceConfig is a topology with everything decided.
type serviceConfig struct {
	topology
	node          nodeSection
	listen        string
	gatewayListen string
	token         string
	binary        string
	path          string
	log           *slog.Logger
}

// URLs at which the two listeners are reached.
func (s *service) rolloutURL() string { return "http://" + s.rolloutListener.Addr().String() }

func (s *service) gatewayURL() string {
	if s.cfg.node.PublicURL != "" {
		return s.cfg.node.PublicURL
	}
	return "http://" + reachable(s.gatewayListener.Addr().String())
}

// reachable turns an address that means "every interface" into one that can be
// connected to from this machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// openService takes the data folder and the ports and opens everything on it.
// What it opened before an error is closed again.
func openService(ctx context.Context, cfg serviceConfig) (_ *service, err error) {
	s := &service{cfg: cfg, log: cfg.log, drivers: map[string]sandbox.Driver{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	if s.lock, err = store.Lock(ctx, cfg.DataDir); err != nil {
		return nil, err
	}
	if s.rolloutListener, err = listenOn(ctx, cfg.listen); err != nil {
		return nil, err
	}
	if s.gatewayListener, err = listenOn(ctx, cfg.gatewayListen); err != nil {
		return nil, err
	}
	blobs, err := store.OpenBlobs(cfg.blobPath())
	if err != nil {
		return nil, err
	}
	if s.store, err = store.Open(ctx, store.Config{Path: cfg.storePath()}); err != nil {
		return nil, err
	}
	callDir := filepath.Join(cfg.DataDir, "calls")
	if s.calls, err = calllog.Open(calllog.Config{Dir: callDir, Log: cfg.log}); err != nil {
		return nil, err
	}
	kinds := builtin(cfg.binary, kit.Folder{Dir: cfg.Gateway.HarnessDir}.Find)
	if err := s.openDrivers(ctx, kinds); err != nil {
		return nil, err
	}
	if err := s.openGateway(kinds); err != nil {
		return nil, err
	}
	plugins := node.Plugins{
		Harnesses: kinds.harnesses, Builders: kinds.builders, Evaluators: kinds.evaluators,
		Drivers: s.drivers, AllowedHostPaths: cfg.Gateway.AllowedHostPaths, DefaultRuntime: s.defaultRuntime(),
	}
	s.server, err = coordinator.New(coordinator.Config{
		Store: s.store, Blobs: blobs, Check: plugins.Check,
		Calls: func(_ context.Context, id polar.SessionID, attempt int) ([]polar.Call, error) {
			return calllog.Read(callDir, id, attempt)
		},
		ControlToken: cfg.token, Lease: cfg.LeaseSeconds.Duration(), UnknownFields: cfg.Rollout.UnknownFields, Log: cfg.log,
	})
	if err != nil {
		return nil, err
	}
	s.node, err = node.New(node.Config{
		ID: cfg.node.ID, Work: s.server, Recorder: s.gateway, Plugins: plugins, Blobs: blobs,
		MaxInit: cfg.node.MaxInit, MaxRun: cfg.node.MaxRun, MaxPostrun: cfg.node.MaxPostrun, ReadyBuffer: cfg.node.ReadyBuffer,
		GatewayURL: s.gatewayURL(), Log: cfg.log,
	})
	return s, err
}

func (s *service) defaultRuntime() polar.Runtime {
	if s.cfg.node.DefaultRuntime != nil {
		return *s.cfg.node.DefaultRuntime
	}
	return polar.Runtime{Backend: "local"}
}

// driverSettings are what every sandbox driver of a node is told.
type driverSettings struct {
	Dir              string   `json:"dir"`
	Path             string   `json:"path"`
	AllowedHostPaths []string `json:"allowed_host_paths,omitempty"`
}

// openDrivers opens every kind of sandbox and ends what a killed server left
// running in them.
func (s *service) openDrivers(ctx context.Context, kinds plugins) error {
	for _, kind := range kinds.drivers.Kinds() {
		dir, err := filepath.Abs(filepath.Join(s.cfg.DataDir, "sandboxes", kind))
		if err != nil {
			return err
		}
		settings, err := json.Marshal(driverSettings{Dir: dir, Path: s.cfg.path, AllowedHostPaths: s.cfg.Gateway.AllowedHostPaths})
		if err != nil {
			return err
		}
		driver, err := kinds.drivers.Open(polar.Spec{Kind: kind, Config: settings})
		if err != nil {
			return fmt.Errorf("open sandbox %s: %w", kind, err)
		}
		if err := driver.Sweep(ctx); err != nil {
			return fmt.Errorf("sweep sandbox %s: %w", kind, err)
		}
		s.drivers[kind] = driver
	}
	return nil
}

func (s *service) openGateway(kinds plugins) error {
	var err error
	if s.engine, err = openEngine(kinds.engines, s.cfg.node.Inference); err != nil {
		return err
	}
	s.gateway, err = gateway.New(gateway.Config{
		Protocols: kinds.protocols, Backend: s.engine,
		OpenLog: func(id polar.SessionID, attempt int) (gateway.SessionLog, error) { return s.calls.Session(id, attempt) },
		Build: func(strategy string, config json.RawMessage, calls []polar.Call) (polar.Trajectory, error) {
			build, err := kinds.builders.Open(polar.Spec{Kind: strategy, Config: config})
			if err != nil {
				return polar.Trajectory{}, err
			}
			return build(trajectory.Record{Calls: calls})
		},
		URL: s.gatewayURL(), Model: s.cfg.node.ModelServed, Models: s.engine.Models,
		ContextWindow: func() int { return int(s.window.Load()) }, ControlToken: s.cfg.token,
		LateSystem: s.cfg.node.Inference.LateSystem, AllowImplicit: s.cfg.Gateway.AllowImplicit,
		Engine: llm.Engine{Kind: s.cfg.node.Inference.Engine, URL: s.cfg.node.Inference.endpoints()[0].URL}, Log: s.log,
	})
	return err
}

// Run serves until ctx ends. Sessions that run then are stopped and run again
// when the service is started the next time.
func (s *service) Run(ctx context.Context) error {
	defer s.close()
	// A gateway makes much garbage over a small heap. Memory that is asked for and
	// never touched costs nothing and lets the collector wait for more of it.
	ballast := make([]byte, 64<<20)
	defer runtime.KeepAlive(ballast)
	if err := s.probe(ctx); err != nil {
		return err
	}
	if err := s.server.Release(ctx, s.cfg.node.ID); err != nil {
		return err
	}
	// The node stops before what it reports to and records with.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	all, base := errgroup.WithContext(base)
	all.Go(func() error { return s.server.Run(base) })
	all.Go(func() error { return serveHTTP(base, s.rolloutListener, s.server) })
	all.Go(func() error { return serveHTTP(base, s.gatewayListener, s.gateway) })
	all.Go(func() error {
		defer stop()
		return s.node.Run(ctx)
	})
	err := all.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// probe makes one real call to the engine and says what it gives.
func (s *service) probe(ctx context.Context) error {
	mode := s.cfg.node.Inference.Probe
	if mode == "off" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := s.cfg.node.Inference.describe()
	p, err := s.engine.Probe(ctx)
	if err != nil {
		s.log.Warn("engine does not answer yet; calls will be tried as they come", "engine", url, "error", err)
		return nil
	}
	s.window.Store(int64(p.MaxContext))
	if missing := p.Missing(); missing != "" {
		if mode == "require" {
			return fmt.Errorf("engine %s returns no %s, so nothing it says could be trained on; start it so that it does, or set probe: warn", url, missing)
		}
		s.log.Warn("engine does not return what training needs", "engine", url, "missing", missing)
	}
	return nil
}

func (s *service) close() {
	for _, l := range []net.Listener{s.rolloutListener, s.gatewayListener} {
		if l != nil {
			_ = l.Close()
		}
	}
	if s.calls != nil {
		_ = s.calls.Close()
	}
	if s.store != nil {
		_ = s.store.Close()
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}
