package node

import (
	"context"
	"time"

	"polar"
)

// live is the life of a session, from a claimed attempt to its result. It
// always returns a result; what went wrong is a Failure in it. The result
// counts only if ours is true: otherwise the session was let go of on the way.
//
// owned ends when the attempt is no longer this node's, or the node stops;
// wanted, below it, also when the caller cancels the session.
func (n *Node) live(owned, wanted context.Context, s *session) (result polar.Result, ours bool) {
	l := n.newLife(owned, s)
	t := &l.result.Timing
	defer l.free() // whatever happens, nothing stays behind

	// INIT: a sandbox that holds all the harness needs.
	l.enter(wanted, n.init, phaseInit, polar.Initializing, &t.RegisterToInitQueue)
	l.timed(wanted, &t.Init, func(ctx context.Context) {
		l.step(ctx, inPlugins, nil, l.openPlugins)
		l.step(ctx, inSandbox, &t.ContainerStart, l.startSandbox)
		l.step(ctx, inPrepare, &t.Prepare, l.prepareSandbox)
		l.step(ctx, inRecorder, nil, l.openRecorder)
		l.step(ctx, inPlugins, nil, l.planHarness)
		l.step(ctx, inSetup, &t.AgentSetup, l.setUpHarness)
	})

	// READY: the sandbox waits for a run slot and holds no init slot.
	l.enter(wanted, n.ready, phaseReady, polar.Ready, nil)
	l.enter(wanted, n.run, phaseRun, polar.Running, &t.ReadyQueue)

	// RUN: the harness works. What it did counts even if it was cut off.
	l.timed(wanted, &t.Run, func(ctx context.Context) {
		l.step(ctx, inRun, &t.AgentExec, l.runHarness)
	})
	l.always(inRecorder, nil, l.closeRecorder)

	// POSTRUN: make sense of it, score it, keep what it left.
	l.enterAfterRun(n.postrun, &t.PostrunQueue)
	postrun := time.Now()
	l.always(inBuild, &t.Build, l.build)
	l.score(wanted)
	l.always(inArtifacts, nil, l.keepRecords)
	l.always(inArtifacts, nil, l.keepArtifacts)
	l.tearDown(&t.RuntimeStop)
	t.Postrun = ms(time.Since(postrun))

	return l.finish(), owned.Err() == nil
}
