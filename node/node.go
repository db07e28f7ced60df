// Package node runs sessions on one machine. It asks the rollout server for
// work when it has room, holds each session under a lease, takes it through
// INIT, READY, RUN and POSTRUN, and reports its result.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"polar"
	"polar/api"
)

// Work is where sessions come from and results go: the rollout server.
type Work interface {
	// Claim waits for work up to the request's Wait. It also tells what to stop.
	Claim(ctx context.Context, req api.ClaimRequest) (api.ClaimReply, error)
	// Renew keeps leases; those it lists as lost are no longer this node's.
	Renew(ctx context.Context, req api.RenewRequest) (api.RenewReply, error)
	// Report ends a session. An error that wraps api.ErrStale means that the
	// result is not wanted; one that is a polar.FieldError, that it is refused.
	Report(ctx context.Context, result polar.Result) error
}

// Recorder passes a session's model calls on and keeps them: the gateway.
type Recorder interface {
	// Open begins to take calls with the recording's key.
	Open(ctx context.Context, r polar.Recording) (polar.Endpoint, error)
	// Close takes no more calls and returns those that were made, as far as they
	// are there if there is also an error. One whose ctx ended can be repeated.
	Close(ctx context.Context, key string) ([]polar.Call, error)
}

// Holder is a Recorder that holds calls back while inference is paused.
type Holder interface {
	// Held is how long calls with the key have been held back so far.
	Held(key string) time.Duration
}

// Blobs keeps files for good and gives each an address.
type Blobs interface {
	Put(ctx context.Context, content io.Reader) (ref string, size int64, err error)
}

// Config says what a node works with. Zero numbers mean the default.
type Config struct {
	ID       string
	Work     Work
	Recorder Recorder
	Plugins  Plugins
	Blobs    Blobs
	// GatewayURL is where the sandboxes of this machine find the gateway.
	GatewayURL string
	// MaxInit (4), MaxRun (2) and MaxPostrun (4) are how many sessions may be in
	// each stage at once; ReadyBuffer (MaxRun) how many prepared sandboxes may
	// wait for a run slot.
	MaxInit, MaxRun, MaxPostrun, ReadyBuffer int
	// ClaimWait (20 s) is how long one request for work may take.
	ClaimWait time.Duration
	// CleanupLimit (1 min) bounds each step of tidying up after a session, which
	// goes on when the session's own time is over.
	CleanupLimit time.Duration
	// MaxArtifacts (1,000) files of together MaxArtifactBytes (256 MiB) are kept
	// of a session. A command's log is cut at MaxLogBytes (32 MiB).
	MaxArtifacts     int
	MaxArtifactBytes int64
	MaxLogBytes      int64
	// Scratch is a folder for logs that are being written; empty means the
	// system's place for temporary files.
	Scratch string
	Log     *slog.Logger
}

// Node runs sessions.
type Node struct {
	cfg                       Config
	log                       *slog.Logger
	init, ready, run, postrun *pool

	mu   sync.Mutex
	held map[attempt]*session
	// changed has the sessions whose state the server does not know yet.
	changed map[attempt]bool
	// moved is closed and replaced whenever a session changes its phase.
	moved chan struct{}
	// renew wakes the renewals.
	renew chan struct{}
}

// New checks the configuration.
func New(cfg Config) (*Node, error) {
	switch {
	case !polar.ValidID(cfg.ID):
		return nil, fmt.Errorf("open node: %q is not an id", cfg.ID)
	case cfg.Work == nil || cfg.Recorder == nil || cfg.Blobs == nil || cfg.Log == nil:
		return nil, errors.New("open node: Work, Recorder, Blobs and Log must be given")
	case cfg.MaxInit < 0 || cfg.MaxRun < 0 || cfg.MaxPostrun < 0 || cfg.ReadyBuffer < 0:
		return nil, errors.New("open node: sizes of stages must be 1 or more")
	}
	orDefault(&cfg.MaxInit, 4)
	orDefault(&cfg.MaxRun, 2)
	orDefault(&cfg.MaxPostrun, 4)
	orDefault(&cfg.ReadyBuffer, cfg.MaxRun)
	orDefault(&cfg.ClaimWait, 20*time.Second)
	orDefault(&cfg.CleanupLimit, time.Minute)
	orDefault(&cfg.MaxArtifacts, 1000)
	orDefault(&cfg.MaxArtifactBytes, 256<<20)
	orDefault(&cfg.MaxLogBytes, 32<<20)
	return &Node{
		cfg:     cfg,
		log:     cfg.Log.With("node", cfg.ID),
		init:    newPool(cfg.MaxInit),
		ready:   newPool(cfg.ReadyBuffer),
		run:     newPool(cfg.MaxRun),
		postrun: newPool(cfg.MaxPostrun),
		held:    map[attempt]*session{},
		changed: map[attempt]bool{},
		moved:   make(chan struct{}),
		renew:   make(chan struct{}, 1),
	}, nil
}

func orDefault[T int | int64 | time.Duration](v *T, standard T) {
	if *v == 0 {
		*v = standard
	}
}

// Run works until ctx ends. Sessions under way are then stopped and their
// sandboxes closed; they are not reported, so the server gives them to the next
// node that asks.
func (n *Node) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all.Go(func() { n.renewAll(ctx) })
	n.pull(ctx, &all)
	return nil
}

// Info describes the node and how full it is.
func (n *Node) Info() api.NodeInfo {
	return api.NodeInfo{
		Node:       n.cfg.ID,
		GatewayURL: n.cfg.GatewayURL,
		MaxInit:    n.cfg.MaxInit,
		MaxRun:     n.cfg.MaxRun,
		MaxPostrun: n.cfg.MaxPostrun,
		Healthy:    true,
		Metrics: api.Stages{
			InitQueue: n.init.waiting(), Init: n.init.busy(),
			Ready: n.ready.busy(), Run: n.run.busy(),
			PostrunQueue: n.postrun.waiting(), Postrun: n.postrun.busy(),
		},
		LastHeartbeat: time.Now(),
	}
}
