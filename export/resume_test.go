package export_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"polar"
	"polar/export"
)

// many is n results of two traces each, in tasks of four with rewards 0 to 3.
func many(tb testing.TB, n, length, words int) memory {
	tb.Helper()
	m := memory{per: 4, results: make([]json.RawMessage, n)}
	for i := range m.results {
		m.results[i] = synthetic(tb, i, length, words)
	}
	return m
}

func synthetic(tb testing.TB, i, length, words int) json.RawMessage {
	tb.Helper()
	reward := float64(i % 4)
	r := polar.Result{Session: polar.SessionID(fmt.Sprintf("t%d.%d", i/4, i%4)), Task: polar.TaskID(fmt.Sprintf("t%d", i/4)), Status: polar.Completed}
	for k := range 2 {
		t := polar.Trace{
			ID: polar.TraceID(fmt.Sprintf("trace-%03d", k)), Role: polar.RoleMain, Reward: &reward,
			PromptMessages:   []json.RawMessage{json.RawMessage(`{"role":"user","content":"go"}`)},
			ResponseMessages: []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":"answer %d %s"}`, i, strings.Repeat("word ", words)))},
		}
		for p := range length {
			t.PromptIDs = append(t.PromptIDs, int32(p))
			t.ResponseIDs = append(t.ResponseIDs, int32(i+p))
			t.LossMask = append(t.LossMask, true)
			t.ResponseLogprobs = append(t.ResponseLogprobs, -float32(p)/8)
		}
		r.Trajectory.Traces = append(r.Trajectory.Traces, t)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func read(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestAnExportThatWasCutGoesOnToTheSameBytes(t *testing.T) {
	t.Parallel()
	source := many(t, 240, 20, 50)
	errCut := errors.New("cut")
	for _, tt := range []struct{ format, container string }{
		{"slime", export.JSONL}, {"slime", export.JSONLZstd}, {"polar", export.JSONL}, {"dpo", export.JSONLZstd}, {"verl", export.Parquet},
	} {
		t.Run(tt.format+" "+tt.container, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := export.Config{Source: source, Format: tt.format, Container: tt.container, PieceBytes: 32 << 10}
			whole, again := filepath.Join(dir, "whole"), filepath.Join(dir, "again")
			want, err := export.ToFile(t.Context(), c, whole)
			if err != nil {
				t.Fatal(err)
			}
			cut := source
			cut.stop = func(seq int64) error {
				if seq == 230 {
					return errCut
				}
				return nil
			}
			c.Source = cut
			if _, err := export.ToFile(t.Context(), c, again); !errors.Is(err, errCut) {
				t.Fatalf("%v", err)
			}
			if _, err := os.Stat(again); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the file is there before it is whole: %v", err)
			}
			resumable := tt.container != export.Parquet && tt.format != "dpo"
			if resumable { // what a killed process may leave after the last whole piece
				f, err := os.OpenFile(again+".part", os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(`{"torn":`); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var first int64
			source := source
			source.stop = func(seq int64) error {
				if first == 0 {
					first = seq
				}
				return nil
			}
			var notes []string
			c.Source, c.Resume, c.Note = source, true, func(s string) { notes = append(notes, s) }
			got, err := export.ToFile(t.Context(), c, again)
			if err != nil {
				t.Fatal(err)
			}
			if got.Rows != want.Rows || got.Bytes != want.Bytes || got.Results != want.Results {
				t.Errorf("summary %+v, want %+v", got, want)
			}
			if resumable != (first > 1) {
				t.Errorf("it went on with result %d: %q", first, notes)
			}
			if !bytes.Equal(read(t, whole), read(t, again)) {
				t.Error("the bytes differ")
			}
			if left, _ := filepath.Glob(again + ".part*"); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestPairsGoOnAfterTheRowsThatAreThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := many(t, 200, 1, 200)
	c := export.Config{Source: source, Format: "dpo", Container: export.JSONL, PieceBytes: 16 << 10}
	if _, err := export.ToFile(t.Context(), c, filepath.Join(dir, "whole")); err != nil {
		t.Fatal(err)
	}
	errCut := errors.New("cut")
	c.Source = failingReads{source, "191", errCut}
	again := filepath.Join(dir, "again")
	if _, err := export.ToFile(t.Context(), c, again); !errors.Is(err, errCut) || !strings.Contains(err.Error(), "go on with --resume") {
		t.Fatalf("%v", err)
	}
	c.Source, c.Resume = failingReads{source, "3", errCut}, true // the first pair is not read again
	if _, err := export.ToFile(t.Context(), c, again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, filepath.Join(dir, "whole")), read(t, again)) {
		t.Error("the bytes differ")
	}
}

// failingReads cannot read one result again.
type failingReads struct {
	memory
	ref string
	err error
}

func (f failingReads) Read(ctx ctx, ref string) (json.RawMessage, error) {
	if ref == f.ref {
		return nil, f.err
	}
	return f.memory.Read(ctx, ref)
}

func TestResumeRefusesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x")
	source := many(t, 240, 20, 50)
	source.stop = func(seq int64) error {
		if seq == 240 {
			return os.ErrDeadlineExceeded
		}
		return nil
	}
	c := export.Config{Source: source, Format: "polar", Container: export.JSONL, PieceBytes: 32 << 10}
	if _, err := export.ToFile(t.Context(), c, path); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	half := 0.5
	short := source
	short.results = short.results[:100]
	state := read(t, path+".part.state")
	for name, tt := range map[string]struct {
		change func(*export.Config)
		want   string
	}{
		"another format":    {func(c *export.Config) { c.Format = "slime" }, "resume: "},
		"another container": {func(c *export.Config) { c.Container = export.JSONLZstd }, "resume: "},
		"another filter":    {func(c *export.Config) { c.Filter.MinReward = &half }, "resume: "},
		"fewer results":     {func(c *export.Config) { c.Source = short }, "the export that is to be gone on with had 240 results, here are 100"},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.Resume = true
			tt.change(&c)
			if _, err := export.ToFile(t.Context(), c, path); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
			if !bytes.Equal(state, read(t, path+".part.state")) {
				t.Error("the state was changed")
			}
		})
	}
}

func TestWriteErrorsEndAnExport(t *testing.T) {
	t.Parallel()
	for _, container := range []string{export.JSONL, export.JSONLZstd, export.Parquet} {
		_, err := export.ToWriter(t.Context(), export.Config{Source: fixture(t), Format: "verl", Container: container}, fullDisk{})
		if !errors.Is(err, errFull) {
			t.Errorf("%s: %v", container, err)
		}
	}
}

type fullDisk struct{}

var errFull = errors.New("full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

// TestMemoryDoesNotGrowWithTheNumberOfRows streams results that are made as they
// are asked for, and looks at the heap on the way.
func TestMemoryDoesNotGrowWithTheNumberOfRows(t *testing.T) {
	raw := synthetic(t, 1, 4, 4)
	for _, container := range []string{export.JSONLZstd, export.Parquet} {
		t.Run(container, func(t *testing.T) {
			const results = 10_000 // two rows each
			var early, most uint64
			source := endless{raw: raw, n: results, at: func(seq int64) {
				if seq%2000 != 0 {
					return
				}
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				if seq == 2000 {
					early = m.HeapAlloc
				}
				most = max(most, m.HeapAlloc)
			}}
			sum, err := export.ToFile(t.Context(), export.Config{Source: source, Format: "trl", Container: container, PieceBytes: 256 << 10}, filepath.Join(t.TempDir(), "x"))
			if err != nil || sum.Rows != 2*results {
				t.Fatalf("%+v, %v", sum, err)
			}
			if most > early+16<<20 {
				t.Errorf("the heap grew from %d to %d bytes", early, most)
			}
		})
	}
}
