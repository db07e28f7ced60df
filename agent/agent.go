// Package agent is mini, the small harness built into polar: a loop around
// Chat Completions with one bash tool. It keeps its history append-only and
// sends every turn of the model back as it came.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"polar/llm"
	"polar/rawjson"
)

// Config says what to do, with which model and where.
type Config struct {
	// BaseURL is that of the API, with its /v1.
	BaseURL string
	APIKey  string
	Model   string
	// Instruction is the task; SystemPrompt defaults to DefaultSystemPrompt.
	Instruction  string
	SystemPrompt string
	// MaxSteps is the most model calls; 0 means 20.
	MaxSteps int
	// Workdir is where commands run, and Env all of their environment.
	Workdir string
	Env     []string
	// MaxOutputBytes is how much of a command's output the model sees, its head
	// and its tail; 0 means 16 KiB.
	MaxOutputBytes int
	// CommandTimeout bounds one command; 0 means 2 minutes.
	CommandTimeout time.Duration
	// Stream asks for answers piece by piece instead of whole.
	Stream bool
	// Retries is how often a call that failed is made again, 0 means 5 and below
	// 0 never. Backoff is the first wait, doubled each time; 0 means 500 ms.
	Retries int
	Backoff time.Duration
	// Log takes a JSON object per line for every request, response and tool
	// result; nil means none is kept.
	Log io.Writer
	// HTTP is the client to call with; nil means one of its own.
	HTTP *http.Client
}

// DefaultSystemPrompt is what the model is told before the instruction.
const DefaultSystemPrompt = `You are an agent that works on a task in a folder on a computer, by running commands.
Use the bash tool to look around, to do the work and to check it. Every command starts in the work folder, in a shell of its own.
When the task is done, answer without calling a tool and say in a sentence or two what you did.`

// Reason says why a run ended.
type Reason string

// The reasons.
const (
	Done      Reason = "done"       // the model answered without calling a tool
	StepLimit Reason = "step_limit" // it never did
)

// ErrStepLimit is returned with the Outcome of a run whose model still called
// tools at its last step.
var ErrStepLimit = errors.New("step limit reached before the model was done")

// Outcome is how a run went.
type Outcome struct {
	// Steps is how many answers the model gave.
	Steps int `json:"steps"`
	// Final is the text of its last one.
	Final  string `json:"final"`
	Reason Reason `json:"reason"`
}

// Run works on the instruction until the model is done, and returns when all
// that it started has ended. Cancelling ctx ends a running command with all
// its processes; what a command left in the background lives until Run returns.
func Run(ctx context.Context, c Config) (Outcome, error) {
	if err := c.check(); err != nil {
		return Outcome{}, err
	}
	a := &agent{Config: c.withDefaults()}
	if c.HTTP == nil {
		defer a.HTTP.CloseIdleConnections()
	}
	a.client = client{
		http: a.HTTP, url: strings.TrimSuffix(a.BaseURL, "/") + "/chat/completions", key: a.APIKey,
		stream: a.Stream, retries: a.Retries, backoff: a.Backoff,
	}
	a.shell = shell{dir: a.Workdir, env: append([]string{}, a.Env...), maxOutput: a.MaxOutputBytes, timeout: a.CommandTimeout}
	defer a.shell.close()
	return a.loop(ctx)
}

func (c Config) check() error {
	switch {
	case c.BaseURL == "":
		return errors.New("the base URL of the model API is missing")
	case c.Instruction == "":
		return errors.New("the instruction is missing")
	case c.MaxSteps < 0:
		return fmt.Errorf("max steps is %d, must be above 0", c.MaxSteps)
	case c.MaxOutputBytes < 0 || c.CommandTimeout < 0 || c.Backoff < 0:
		return errors.New("max output, command timeout and backoff must not be below 0")
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.SystemPrompt == "" {
		c.SystemPrompt = DefaultSystemPrompt
	}
	if c.MaxSteps == 0 {
		c.MaxSteps = 20
	}
	if c.MaxOutputBytes == 0 {
		c.MaxOutputBytes = 16 << 10
	}
	if c.CommandTimeout == 0 {
		c.CommandTimeout = 2 * time.Minute
	}
	switch {
	case c.Retries == 0:
		c.Retries = 5
	case c.Retries < 0:
		c.Retries = 0
	}
	if c.Backoff == 0 {
		c.Backoff = 500 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}
	}
	return c
}

// agent is one run.
type agent struct {
	Config
	client client
	shell  shell
	// messages are the history, each as JSON. It only ever grows.
	messages []json.RawMessage
	step     int
}

func (a *agent) loop(ctx context.Context) (Outcome, error) {
	a.say(llm.Message{Role: "system", Content: rawjson.Quote(a.SystemPrompt)})
	a.say(llm.Message{Role: "user", Content: rawjson.Quote(a.Instruction)})
	var out Outcome
	for a.step = 1; a.step <= a.MaxSteps; a.step++ {
		a.log("request", "messages", len(a.messages))
		answer, err := a.client.complete(ctx, a.request())
		if err != nil {
			return out, fmt.Errorf("model call %d: %w", a.step, err)
		}
		out.Steps = a.step
		out.Final = answer.message.Text()
		raw := answer.message.AppendJSON(nil, answer.reasoningKey)
		a.messages = append(a.messages, raw)
		a.log("response", "message", json.RawMessage(raw), "finish_reason", answer.finish)
		if len(answer.message.ToolCalls) == 0 {
			out.Reason = Done
			return out, nil
		}
		for _, call := range answer.message.ToolCalls {
			result, err := a.call(ctx, call)
			if err != nil {
				return out, err
			}
			a.say(llm.Message{Role: "tool", ToolCallID: call.ID, Content: rawjson.Quote(result)})
			a.log("tool_result", "tool_call_id", call.ID, "content", result)
		}
	}
	out.Reason = StepLimit
	return out, ErrStepLimit
}

func (a *agent) say(m llm.Message) {
	a.messages = append(a.messages, m.AppendJSON(nil, "reasoning_content"))
}

// toolName and toolSchema are the one tool on offer.
const (
	toolName   = "bash"
	toolSchema = `{"type":"function","function":{"name":"` + toolName + `","description":"Run a command with bash in the work folder and return its exit code and output.","parameters":{"type":"object","properties":{"command":{"type":"string","description":"The command line to run."}},"required":["command"]}}}`
)

// request is the body of the next call. The history stands in it byte for byte
// as in the call before.
func (a *agent) request() []byte {
	b := []byte(`{"model":`)
	b = rawjson.AppendString(b, a.Model)
	b = append(b, `,"messages":[`...)
	for i, m := range a.messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m...)
	}
	b = append(b, `],"tools":[`+toolSchema+`]`...)
	if a.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	return append(b, '}')
}

// call runs one tool call. What the model did wrong is the result, so that it
// can do better; an error ends the run.
func (a *agent) call(ctx context.Context, call llm.ToolCall) (string, error) {
	if call.Name != toolName {
		return fmt.Sprintf("error: there is no tool %q; the only tool is %s", call.Name, toolName), nil
	}
	command, complaint := commandOf(call.Arguments)
	if complaint != "" {
		return "error: " + complaint, nil
	}
	return a.shell.run(ctx, command)
}

// commandOf reads the tool's arguments, or says what the model did wrong.
func commandOf(arguments string) (command, complaint string) {
	o, err := rawjson.ParseObject([]byte(arguments))
	if err != nil {
		return "", "the arguments are " + err.Error()
	}
	if command, err = rawjson.String(o.Get("command")); err != nil {
		return "", "the argument command is wrong: " + err.Error()
	}
	return command, ""
}

// log writes one line. A log that cannot be written does not stop the work.
func (a *agent) log(kind string, pairs ...any) {
	line := map[string]any{"time": time.Now().UTC().Format(time.RFC3339Nano), "step": a.step, "type": kind}
	for i := 0; i+1 < len(pairs); i += 2 {
		line[pairs[i].(string)] = pairs[i+1]
	}
	if b, err := json.Marshal(line); err == nil {
		_, _ = a.Log.Write(append(b, '\n'))
	}
}
