package trajectory_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/trajectory"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("%s: %s", path, diff)
	}
}

func TestSettingsAreStrict(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ config, want string }{
		"an unknown field":            {`{"end_of_turn":1}`, "end_of_turn: unknown field"},
		"a tokenizer":                 {`{"tokenizer_name_or_path":"x"}`, "tokenizer_name_or_path: unknown field"},
		"another way to treat drift":  {`{"drift":"merge"}`, `drift: is "merge", must be splice or split`},
		"a token that cannot be":      {`{"end_of_turn_token_id":-1}`, "end_of_turn_token_id: must not be negative"},
		"a role there is not":         {`{"train_roles":["main","boss"]}`, `train_roles: has "boss"; roles are main, subagent, compaction and auxiliary`},
		"no role at all":              {`{"train_roles":[]}`, "train_roles: names no role: nothing would be trained on"},
		"another rule of credit":      {`{"credit":"first"}`, `credit: is "first", must be all, main, split or last`},
		"a token that is not a token": {`{"end_of_turn_token_id":"<eot>"}`, "end_of_turn_token_id: string given, an integer expected"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := polar.Opener(trajectory.PrefixMerging)(json.RawMessage(test.config))
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	for _, config := range []string{`{"drift":"split"}`, `{"credit":"first"}`} {
		if _, err := polar.Opener(trajectory.PerRequest)(json.RawMessage(config)); err == nil {
			t.Errorf("per_request took %s", config)
		}
	}
}
