package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// tomlFile writes TOML: keys that are bare, and values whose JSON is TOML too.
type tomlFile struct{ bytes.Buffer }

func (t *tomlFile) table(name string) { fmt.Fprintf(t, "\n[%s]\n", name) }

func (t *tomlFile) set(key string, value any) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("a setting that is no JSON: %v", err))
	}
	// The one character that JSON strings may have as it is and TOML's may not.
	fmt.Fprintf(t, "%s = %s", key, strings.ReplaceAll(b.String(), "\x7f", `\u007f`))
}

// setIf sets what is not empty.
func (t *tomlFile) setIf(key string, value any) {
	if value != "" && value != 0 {
		t.set(key, value)
	}
}
