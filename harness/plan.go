package harness

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"polar"
)

// model is the one the agent names, else the one the gateway serves. A name in
// three parts, PROVIDER/ORGANISATION/NAME, is asked for without the first: the
// provider is polar.
func (j Job) model() string {
	name := j.Agent.ModelName
	if name == "" {
		name = j.Model
	}
	if provider, rest, ok := strings.Cut(name, "/"); ok && provider != "" && strings.Contains(rest, "/") {
		return rest
	}
	return name
}

// modelOrPolar is the model, or a name for CLIs that must ask for some. It is
// one that no CLI knows, so that none takes it for a model with habits.
func (j Job) modelOrPolar() string {
	if model := j.model(); model != "" {
		return model
	}
	return "polar"
}

// limits are the context window and the longest answer that a CLI is told of,
// which are those of its settings, else what is known of the model, else usual
// ones. An answer never has more than a quarter of a window that is known only
// from the model: CLIs take it off the window before they count.
func (j Job) limits(window, answer int) (context, output int) {
	const usualWindow, usualAnswer = 262144, 8192
	context = orElse(window, orElse(j.ContextWindow, usualWindow))
	if answer == 0 {
		answer = usualAnswer
		if window == 0 {
			answer = min(answer, context/4)
		}
	}
	return context, answer
}

// jsonFile is a file of a CLI's settings.
func jsonFile(name string, content any) (File, error) {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return File{}, err
	}
	return File{Path: name, Content: append(data, '\n'), Mode: 0o600}, nil
}

// orElse is the setting, or what stands for none.
func orElse[T comparable](setting, usual T) T {
	var none T
	if setting == none {
		return usual
	}
	return setting
}

// withInput is a command that reads a file as its input. It is how a CLI gets
// an instruction of any length, and one that begins like an option or a file's
// name, as it is.
func withInput(file string, args ...string) []string {
	return append([]string{"sh", "-c", `in=$1; shift; exec "$@" <"$in"`, "with-input", file}, args...)
}

// instructionFile is the instruction of a job as a file for withInput.
func instructionFile(dir string, j Job) File {
	return File{Path: path.Join(dir, "instruction.txt"), Content: []byte(j.Instruction), Mode: 0o600}
}

// oneOf refuses a setting that is none of those known; none at all is fine.
func oneOf(field, setting string, known ...string) error {
	if setting == "" || slices.Contains(known, setting) {
		return nil
	}
	return polar.Invalid(field, "%q is not known; known: %s", setting, strings.Join(known, ", "))
}
