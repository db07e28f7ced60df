package harness

import (
	"path"

	"polar/sandbox"
)

// Folders says where a session keeps things, for every command of it.
func Folders(j Job) map[string]string {
	return map[string]string{
		"SESSION_ID":    string(j.Session),
		"TASK_ID":       string(j.Task),
		"SESSION_DIR":   j.Paths.Session,
		"ARTIFACTS_DIR": path.Join(j.Paths.Session, "artifacts"),
		"LOGS_DIR":      LogDir(j.Paths),
		"AGENT_LOG_DIR": AgentLogDir(j.Paths),
	}
}

// Env is the environment every harness is given: where the gateway is, by the
// name each client library looks for, the session's key to it, its folders,
// the instruction and the model. What the task sets comes over it.
func Env(j Job) map[string]string {
	env := Folders(j)
	env["OPENAI_BASE_URL"] = j.BaseURL + "/v1"
	for _, name := range []string{"ANTHROPIC_BASE_URL", "GOOGLE_API_URL", "GOOGLE_GEMINI_BASE_URL"} {
		env[name] = j.BaseURL
	}
	for _, name := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"} {
		env[name] = j.Key
	}
	env["POLAR_INSTRUCTION"] = j.Instruction
	if model := j.model(); model != "" {
		env["POLAR_MODEL"] = model
	}
	return env
}

// LogDir is where the logs of a session are kept.
func LogDir(p sandbox.Paths) string { return path.Join(p.Session, "logs") }

// AgentLogDir is where the logs of the harness are kept.
func AgentLogDir(p sandbox.Paths) string { return path.Join(LogDir(p), "agent") }
