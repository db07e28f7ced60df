// Package polar holds the nouns of the service: tasks, sessions, the model
// calls they make, the trajectories built from them, results and failures.
// Their JSON is the wire that trainers and harnesses rely on.
package polar

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"time"

	"polar/llm"
)

// TaskID names a task. The caller chooses it.
type TaskID string

// SessionID names one sample of a task.
type SessionID string

// Task is what a trainer asks for: an instruction to run a harness on, some
// number of times, with a way to score it.
type Task struct {
	ID          TaskID    `json:"task_id"`
	Instruction string    `json:"instruction"`
	NumSamples  int       `json:"num_samples"`
	Timeout     Seconds   `json:"timeout_seconds"`
	Runtime     *Runtime  `json:"runtime,omitempty"`
	Agent       Agent     `json:"agent"`
	Builder     Strategy  `json:"builder"`
	Evaluator   *Evaluate `json:"evaluator,omitempty"`
	CallbackURL string    `json:"callback_url,omitempty"`
	Callback    *Callback `json:"callback,omitempty"`
	// Metadata is the caller's own; a few keys have a meaning, see Hints.
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty"`
	Priority  int                        `json:"dispatch_priority,omitempty"`
	EarlyStop int                        `json:"early_stop_min_usable_sessions,omitempty"`
	// Sampling is imposed on every model call, whatever the harness asks.
	Sampling    llm.Sampling      `json:"sampling,omitzero"`
	Budget      Budget            `json:"budget,omitzero"`
	MaxAttempts int               `json:"max_attempts"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Seconds is a length of time as the wire has it.
type Seconds float64

// Duration converts to Go's type.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// Strategy names a builder and its settings.
type Strategy struct {
	Strategy string          `json:"strategy"`
	Config   json.RawMessage `json:"config,omitempty"`
}

// Evaluate names an evaluator and its settings.
type Evaluate struct {
	Strategy string            `json:"strategy"`
	Config   json.RawMessage   `json:"config,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	// RefreshRuntime asks for a fresh sandbox to evaluate in.
	RefreshRuntime bool `json:"refresh_runtime,omitempty"`
}

// Callback says where results are pushed.
type Callback struct {
	URL        string            `json:"url"`
	PerSession bool              `json:"per_session,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
}

// Budget bounds the model calls of one session; zero means no bound.
type Budget struct {
	MaxCalls            int `json:"max_calls,omitempty"`
	MaxCompletionTokens int `json:"max_completion_tokens,omitempty"`
	MaxContextTokens    int `json:"max_context_tokens,omitempty"`
}

// Agent says which harness runs and how.
type Agent struct {
	Harness     string            `json:"harness,omitempty"`
	ImportPath  string            `json:"import_path,omitempty"`
	ModelName   string            `json:"model_name,omitempty"`
	Settings    json.RawMessage   `json:"settings,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	MCPServers  []MCPServer       `json:"mcp_servers,omitempty"`
	SkillsPath  string            `json:"skills_path,omitempty"`
	CustomShell *CustomShell      `json:"custom_shell,omitempty"`
}

// MCPServer is a tool server that the harness is to use.
type MCPServer struct {
	Name      string   `json:"name"`
	Transport string   `json:"transport"`
	Command   string   `json:"command,omitempty"`
	Args      []string `json:"args,omitempty"`
	URL       string   `json:"url,omitempty"`
}

// CustomShell is the command of the shell harness.
type CustomShell struct {
	Command string            `json:"command"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// Runtime describes the sandbox a session runs in.
type Runtime struct {
	Backend       string            `json:"backend"`
	Image         string            `json:"image,omitempty"`
	Prepare       []Prepare         `json:"prepare,omitempty"`
	EvalPrepare   []Prepare         `json:"eval_prepare,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	Network       string            `json:"network,omitempty"`
	Workdir       string            `json:"workdir,omitempty"`
	CPUs          float64           `json:"cpus,omitempty"`
	MemoryMB      int               `json:"memory_mb,omitempty"`
	StorageMB     int               `json:"storage_mb,omitempty"`
	GPUs          int               `json:"gpus,omitempty"`
	AllowInternet *bool             `json:"allow_internet,omitempty"`
	Kwargs        RuntimeKwargs     `json:"kwargs,omitzero"`
}

// RuntimeKwargs are the less common settings of a runtime.
type RuntimeKwargs struct {
	Volumes []string `json:"volumes,omitempty"`
}

// Prepare is one step that makes a sandbox ready. Which fields count depends
// on Type.
type Prepare struct {
	Type string `json:"type"` // upload_file, upload_dir, write_file, exec

	Source  string `json:"source,omitempty"`
	Target  string `json:"target,omitempty"`
	Content string `json:"content,omitempty"`
	Mode    string `json:"mode,omitempty"` // octal, as chmod takes it

	Command      string            `json:"command,omitempty"`
	Cwd          string            `json:"cwd,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	MaxAttempts  int               `json:"max_attempts,omitempty"`
	RetryBackoff Seconds           `json:"retry_backoff_seconds,omitempty"`
}

// DecodeTask reads a task over its defaults and checks everything that can be
// checked without opening a plug-in. Errors name the field.
func DecodeTask(data []byte) (Task, error) {
	t := Task{
		NumSamples:  1,
		Timeout:     600,
		Builder:     Strategy{Strategy: "per_request"},
		MaxAttempts: 3,
	}
	if err := DecodeStrict(data, &t); err != nil {
		return Task{}, err
	}
	return t, t.validate()
}

// MaxSamples bounds one task, so that a slip of the pen is no denial of service.
const MaxSamples = 100_000

// idPattern is what an id may look like: it is used in paths and URLs.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// ValidID reports whether s can be the id of a task, session or node.
func ValidID(s string) bool { return idPattern.MatchString(s) }

func (t Task) validate() error {
	switch {
	case t.ID == "":
		return Invalid("task_id", "missing")
	case !ValidID(string(t.ID)):
		return Invalid("task_id", "%q may have letters, digits, '_', '.' and '-' only, begin with a letter or digit and be at most 128 long", t.ID)
	case t.Instruction == "":
		return Invalid("instruction", "missing")
	case t.NumSamples < 1 || t.NumSamples > MaxSamples:
		return Invalid("num_samples", "is %d, must be from 1 to %d", t.NumSamples, MaxSamples)
	case !(t.Timeout > 0) || math.IsInf(float64(t.Timeout), 0):
		return Invalid("timeout_seconds", "must be above 0")
	case t.Priority < 0 || t.Priority > 100:
		return Invalid("dispatch_priority", "is %d, must be from 0 to 100", t.Priority)
	case t.EarlyStop < 0 || t.EarlyStop > t.NumSamples:
		return Invalid("early_stop_min_usable_sessions", "is %d, must be from 1 to num_samples (%d)", t.EarlyStop, t.NumSamples)
	case t.MaxAttempts < 1 || t.MaxAttempts > 100:
		return Invalid("max_attempts", "is %d, must be from 1 to 100", t.MaxAttempts)
	case t.Budget.MaxCalls < 0 || t.Budget.MaxCompletionTokens < 0 || t.Budget.MaxContextTokens < 0:
		return Invalid("budget", "bounds must be above 0")
	case t.Callback != nil && t.CallbackURL != "":
		return Invalid("callback", "give either callback or callback_url")
	case t.Callback != nil && t.Callback.URL == "":
		return Invalid("callback.url", "missing")
	}
	if err := validURL("callback_url", t.CallbackURL); err != nil {
		return err
	}
	if t.Callback != nil {
		if err := validURL("callback.url", t.Callback.URL); err != nil {
			return err
		}
	}
	if err := t.Agent.validate(); err != nil {
		return err
	}
	if t.Evaluator != nil && t.Evaluator.Strategy == "" {
		return Invalid("evaluator.strategy", "missing")
	}
	if t.Runtime != nil {
		if err := t.Runtime.validate(); err != nil {
			return err
		}
	}
	_, err := t.Hints()
	return err
}

func validURL(field, s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(s) > 2048 {
		return Invalid(field, "%q is not an http or https URL", s)
	}
	return nil
}

func (a Agent) validate() error {
	switch {
	case a.ImportPath != "":
		return Invalid("agent.import_path", "Python import paths are not run here; use the shell harness with custom_shell for a harness of your own")
	case a.Harness == "":
		return Invalid("agent.harness", "missing")
	}
	return nil
}

func (r Runtime) validate() error {
	if r.Backend == "" {
		return Invalid("runtime.backend", "missing")
	}
	for field, list := range map[string][]Prepare{"runtime.prepare": r.Prepare, "runtime.eval_prepare": r.EvalPrepare} {
		for i, p := range list {
			if err := p.validate(fmt.Sprintf("%s[%d]", field, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p Prepare) validate(path string) error {
	switch p.Type {
	case "upload_file", "upload_dir":
		if p.Source == "" {
			return Invalid(path+".source", "missing")
		}
		if p.Target == "" {
			return Invalid(path+".target", "missing")
		}
	case "write_file":
		if p.Target == "" {
			return Invalid(path+".target", "missing")
		}
	case "exec":
		if p.Command == "" {
			return Invalid(path+".command", "missing")
		}
		if p.MaxAttempts < 0 || p.MaxAttempts > 10 {
			return Invalid(path+".max_attempts", "is %d, must be from 1 to 10", p.MaxAttempts)
		}
		if p.RetryBackoff < 0 || p.RetryBackoff > 60 {
			return Invalid(path+".retry_backoff_seconds", "must be from 0 to 60")
		}
	default:
		return Invalid(path+".type", "%q is not known; known: exec, upload_dir, upload_file, write_file", p.Type)
	}
	return nil
}
