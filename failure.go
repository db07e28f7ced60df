package polar

import "fmt"

// Blame says whose fault a failure is. Trainers match on it, so a value once
// released keeps its meaning.
type Blame string

// The blames.
const (
	BlameAgent   Blame = "agent"   // the harness or the model: it may learn from it
	BlameTask    Blame = "task"    // bad input: running it again will not help
	BlameService Blame = "service" // engine, node or sandbox: run it again, never train on it
)

// Stage is the part of a session's life in which it failed.
type Stage string

// The stages.
const (
	StageQueue    Stage = "queue"
	StageInit     Stage = "init"
	StageRun      Stage = "run"
	StageBuild    Stage = "build"
	StageEvaluate Stage = "evaluate"
)

// Failure is why a session did not complete.
type Failure struct {
	Stage Stage `json:"stage"`
	Blame Blame `json:"blame"`
	// Kind is a short word that rules can match on, such as exit_code or timeout.
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Stage, f.Message) }

// The kinds of failure. They are API: a value once released keeps its meaning.
const (
	KindTimeout      = "timeout"       // timeout_seconds ran out
	KindAgentTimeout = "agent_timeout" // metadata.agent_timeout ran out
	KindExitCode     = "exit_code"     // the harness ended with another code than 0
	KindHarness      = "harness"       // the harness itself reported a failure
	KindEngine       = "engine"        // model calls died of the engine
	KindNoCalls      = "no_calls"      // the harness made no model call
	KindSandbox      = "sandbox"       // the sandbox could not be had or broke
	KindPrepare      = "prepare"       // a prepare action failed
	KindPlugin       = "plugin"        // a plug-in refused its settings
	KindEvaluator    = "evaluator"     // the evaluator itself broke
	KindStorage      = "storage"       // calls or results could not be stored
	KindCancelled    = "cancelled"     // by the caller
	KindEarlyStop    = "early_stop"    // the group had enough usable sessions
	KindAttemptsLost = "attempts_lost" // node after node died with it
	KindInternal     = "internal"      // a fault of ours
)
