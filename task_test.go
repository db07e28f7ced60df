package polar_test

import (
	"encoding/json"
	"strings"
	"testing"

	"polar"
)

const minimalTask = `{"task_id":"t1","instruction":"do it","agent":{"harness":"mini"}}`

func TestTaskDefaults(t *testing.T) {
	t.Parallel()
	task, err := polar.DecodeTask([]byte("\n " + minimalTask + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if task.NumSamples != 1 || task.Timeout != 600 || task.Builder.Strategy != "per_request" || task.MaxAttempts != 3 {
		t.Errorf("defaults: %+v", task)
	}
}

func TestBadTaskNamesTheField(t *testing.T) {
	t.Parallel()
	with := func(members string) string { return strings.TrimSuffix(minimalTask, "}") + "," + members + "}" }
	tests := map[string]struct{ in, want string }{
		"not JSON":                     {`{"task_id":`, "not valid JSON: a value expected at byte 11"},
		"not an object":                {`[1]`, "body: an array given, an object expected"},
		"no id":                        {`{"instruction":"x","agent":{"harness":"mini"}}`, "task_id: missing"},
		"a path as id":                 {`{"task_id":"../x","instruction":"x","agent":{"harness":"mini"}}`, `task_id: "../x" may have letters`},
		"unknown field":                {with(`"num_sample":3`), "num_sample: unknown field"},
		"unknown field deeper":         {with(`"runtime":{"backend":"local","prepare":[{"type":"exec","command":"a"},{"type":"exec","comand":"b"}]}`), "runtime.prepare[1].comand: unknown field"},
		"wrong type":                   {with(`"num_samples":"3"`), "num_samples: string given, an integer expected"},
		"wrong type of an object":      {with(`"runtime":"local"`), "runtime: a string given, an object expected"},
		"wrong type inside a list":     {with(`"sampling":{"stop":[1]}`), "sampling.stop: number given, a string expected"},
		"no samples":                   {with(`"num_samples":0`), "num_samples: is 0, must be from 1 to"},
		"no time":                      {with(`"timeout_seconds":0`), "timeout_seconds: must be above 0"},
		"early stop over samples":      {with(`"early_stop_min_usable_sessions":2`), "early_stop_min_usable_sessions: is 2"},
		"import path":                  {`{"task_id":"a","instruction":"x","agent":{"import_path":"a:B"}}`, "agent.import_path: Python import paths"},
		"callback without a host":      {with(`"callback_url":"ftp://x"`), "callback_url:"},
		"two callbacks":                {with(`"callback_url":"http://a","callback":{"url":"http://a"}`), "callback: give either"},
		"unknown prepare action":       {with(`"runtime":{"backend":"local","prepare":[{"type":"copy"}]}`), "runtime.prepare[0].type: \"copy\" is not known; known: exec,"},
		"agent timeout of zero":        {with(`"metadata":{"agent_timeout":0}`), "metadata.agent_timeout: must be a number above 0"},
		"priority too high":            {with(`"dispatch_priority":101`), "dispatch_priority: is 101"},
		"evaluator without a strategy": {with(`"evaluator":{}`), "evaluator.strategy: missing"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := polar.DecodeTask([]byte(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error has more than one line: %q", err)
			}
		})
	}
}

func TestTaskSurvivesItsOwnJSON(t *testing.T) {
	t.Parallel()
	const in = `{"task_id":"t","instruction":"x","num_samples":4,"timeout_seconds":1.5,
		"runtime":{"backend":"local","prepare":[{"type":"write_file","target":"a","content":"b"}],"env":{"A":"1"}},
		"agent":{"harness":"shell","settings":{"z":1.0,"a":"<"},"custom_shell":{"command":"true"}},
		"builder":{"strategy":"prefix_merging","config":{"drift":"split"}},
		"evaluator":{"strategy":"command","config":{"command":"true"},"refresh_runtime":true},
		"metadata":{"group_id":7,"any":{"b":1,"a":2}},"sampling":{"temperature":0.5,"stop":["x"],"chat_template_kwargs":{"b":1,"a":2}},
		"budget":{"max_calls":3},"labels":{"k":"v"}}`
	first, err := polar.DecodeTask([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := polar.DecodeTask(out)
	if err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	again, err := json.Marshal(second)
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != string(again) {
		t.Errorf("second encoding differs:\n%s\n%s", out, again)
	}
}

func TestOpenListsTheKnownKinds(t *testing.T) {
	t.Parallel()
	type config struct {
		Steps int `json:"steps"`
	}
	r := polar.Registry[int]{
		"b": polar.Opener(func(c config) (int, error) { return c.Steps, nil }),
		"a": polar.Opener(func(config) (int, error) { return 0, nil }),
	}
	if _, err := r.Open(polar.Spec{Kind: "c"}); err == nil || err.Error() != `"c" is not known; known: a, b` {
		t.Errorf("unknown kind: %v", err)
	}
	if _, err := r.Open(polar.Spec{Kind: "b", Config: []byte(`{"step":1}`)}); err == nil || err.Error() != "step: unknown field" {
		t.Errorf("unknown setting: %v", err)
	}
	if n, err := r.Open(polar.Spec{Kind: "b", Config: []byte(`{"steps":3}`)}); err != nil || n != 3 {
		t.Errorf("got %d, %v", n, err)
	}
}

func FuzzDecodeTask(f *testing.F) {
	f.Add([]byte(minimalTask))
	f.Add([]byte(`{"task_id":"t","runtime":{"prepare":[null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if task, err := polar.DecodeTask(data); err == nil && !polar.ValidID(string(task.ID)) {
			t.Fatalf("accepted the id %q", task.ID)
		}
	})
}
