package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"polar"
	"polar/export"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// memory is a source of results that are at hand. Its tasks have per sessions
// each; stop, if set, is called before a result is given.
type memory struct {
	results []json.RawMessage
	per     int
	stop    func(seq int64) error
}

func (m memory) Newest(context.Context) (int64, error) { return int64(len(m.results)), nil }

func (m memory) Each(_ context.Context, after, until int64, f func(export.Item) error) error {
	heat := 0.75
	for i := after; i < until; i++ {
		if m.stop != nil {
			if err := m.stop(i + 1); err != nil {
				return err
			}
		}
		item := export.Item{Ref: fmt.Sprint(i), Load: func() (json.RawMessage, error) { return m.results[i], nil }}
		item.Place = export.Place{
			Seq: i + 1, TaskSeq: 3 + i/int64(m.per), Index: int(i) % m.per, Harness: "mini",
			Labels: map[string]string{"split": "train"}, Temperature: &heat,
		}
		if err := f(item); err != nil {
			return err
		}
	}
	return nil
}

func (m memory) Read(_ context.Context, ref string) (json.RawMessage, error) {
	var i int
	if _, err := fmt.Sscan(ref, &i); err != nil {
		return nil, err
	}
	return m.results[i], nil
}

// fixture is two sessions of one task: one with drift, two traces to train on
// and a title, and one that lacks a logprob.
func fixture(tb testing.TB) memory {
	tb.Helper()
	text, err := os.ReadFile("testdata/results.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	m := memory{per: 2}
	for line := range bytes.Lines(text) {
		m.results = append(m.results, bytes.TrimSpace(line))
	}
	return m
}

func run(tb testing.TB, c export.Config) (string, export.Summary) {
	tb.Helper()
	if c.Container == "" {
		c.Container = export.JSONL
	}
	var out bytes.Buffer
	sum, err := export.ToWriter(tb.Context(), c, &out)
	if err != nil {
		tb.Fatal(err)
	}
	if sum.Bytes != int64(out.Len()) {
		tb.Errorf("the summary has %d bytes, the file %d", sum.Bytes, out.Len())
	}
	return out.String(), sum
}

func TestEveryFormatWritesItsGoldenFile(t *testing.T) {
	t.Parallel()
	leftOut := map[string]string{
		"polar": "", "atif": "", "sft": "", "sharegpt": "", "dpo": "",
		"slime": "1 traces not trainable", "verl": "1 traces not trainable", "skyrl": "1 traces not trainable",
	}
	for _, name := range export.Formats() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, sum := run(t, export.Config{Source: fixture(t), Format: name})
			path := filepath.Join("testdata", "golden", name+".jsonl")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s: %s", path, diff)
			}
			if sum.Rows != strings.Count(got, "\n") || sum.Results != 2 {
				t.Errorf("summary %+v", sum)
			}
			left, ok := leftOut[name]
			if !ok { // those that need a number for every token
				left = "1 traces not trainable 1 traces without logprobs"
			}
			if got := strings.Join(reasons(sum), " "); got != left {
				t.Errorf("left out %q, want %q", got, left)
			}
		})
	}
}

func reasons(sum export.Summary) (out []string) {
	for _, why := range []string{
		"sessions filtered", "sessions without a trace", "sessions without an answer and a reward", "traces filtered", "traces not trainable",
		"traces with more than text", "traces whose turns and messages do not match", "traces without logprobs", "traces without a reward",
		"groups without a better and a worse session",
	} {
		if n := sum.LeftOut[why]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, why))
		}
	}
	return out
}

func TestFiltersChooseRows(t *testing.T) {
	t.Parallel()
	half := 0.5
	tests := map[string]struct {
		format string
		filter export.Filter
		rows   int
		left   string
	}{
		"a reward of a trace":       {"slime", export.Filter{MinReward: &half}, 2, "1 traces filtered 1 traces not trainable"},
		"a reward of a session":     {"polar", export.Filter{MinReward: &half}, 1, "1 sessions filtered"},
		"a status that is there":    {"sft", export.Filter{Status: []polar.Status{"TIMEOUT", "COMPLETED"}}, 4, ""},
		"a status that is not":      {"sft", export.Filter{Status: []polar.Status{"TIMEOUT"}}, 0, "2 sessions filtered"},
		"a role":                    {"verl", export.Filter{Role: []polar.Role{polar.RoleMain}}, 2, "2 traces filtered"},
		"a role of whole sessions":  {"polar", export.Filter{Role: []polar.Role{polar.RoleSubagent}}, 2, "3 traces filtered"},
		"a label that is there":     {"sft", export.Filter{Labels: map[string]string{"split": "train"}}, 4, ""},
		"a label of another value":  {"sft", export.Filter{Labels: map[string]string{"split": "test"}}, 0, "2 sessions filtered"},
		"a label that is not there": {"sft", export.Filter{Labels: map[string]string{"x": ""}}, 0, "2 sessions filtered"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, sum := run(t, export.Config{Source: fixture(t), Format: tt.format, Filter: tt.filter})
			if got := strings.Join(reasons(sum), " "); sum.Rows != tt.rows || strings.Count(out, "\n") != tt.rows || got != tt.left {
				t.Errorf("%d rows, want %d; left out %q, want %q", sum.Rows, tt.rows, got, tt.left)
			}
		})
	}
}

func TestNarrowedResultsHoldTheTracesChosen(t *testing.T) {
	t.Parallel()
	out, _ := run(t, export.Config{Source: fixture(t), Format: "polar", Filter: export.Filter{Role: []polar.Role{polar.RoleSubagent}}})
	first, _, _ := strings.Cut(out, "\n")
	var r polar.Result
	if err := json.Unmarshal([]byte(first), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Trajectory.Traces) != 1 || r.Trajectory.Traces[0].ID != "trace-001" {
		t.Errorf("%+v", r.Trajectory.Traces)
	}
}

func TestBadChoicesAreNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ format, container, want string }{
		"no format":            {"", "jsonl", "format: missing; known: areal, atif, dpo, nemo_gym, polar, prime_rl, sft, sharegpt, skyrl, slime, tinker, trl, verl"},
		"an unknown format":    {"csv", "jsonl", `format: "csv" is not known; known: areal, `},
		"an unknown container": {"trl", "csv", `container: "csv" is not known; known: jsonl, jsonl.zst, parquet`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := export.Check(tt.format, tt.container); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestBrokenResultsAreNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ result, want string }{
		"not JSON":                 {`{"session_id":`, "read result 1: "},
		"a mask of another length": {`{"session_id":"x","trajectory":{"traces":[{"response_ids":[1,2],"loss_mask":[1]}]}}`, "result 1, session x, trace 0: 2 response ids, 1 in the mask"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := memory{results: []json.RawMessage{json.RawMessage(tt.result)}, per: 1}
			_, err := export.ToWriter(t.Context(), export.Config{Source: source, Format: "verl", Container: export.JSONL}, &bytes.Buffer{})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestZstdHoldsTheSameLines(t *testing.T) {
	t.Parallel()
	plain, _ := run(t, export.Config{Source: fixture(t), Format: "slime"})
	packed, _ := run(t, export.Config{Source: fixture(t), Format: "slime", Container: export.JSONLZstd})
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	got, err := dec.DecodeAll([]byte(packed), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, string(got)); diff != "" {
		t.Error(diff)
	}
}
