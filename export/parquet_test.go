package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"polar/export"
)

var columnar = []string{"areal", "prime_rl", "sharegpt", "skyrl", "tinker", "trl", "verl"}

func TestParquetHasAllFormatsThatAreFlat(t *testing.T) {
	t.Parallel()
	var got []string
	for _, name := range export.Formats() {
		if export.Check(name, export.Parquet) == nil {
			got = append(got, name)
		}
	}
	if diff := cmp.Diff(columnar, got); diff != "" {
		t.Error(diff)
	}
}

// TestParquetReadsBackAsTheJSON reads each file with the library that wrote it,
// by the schema in the file alone.
func TestParquetReadsBackAsTheJSON(t *testing.T) {
	t.Parallel()
	for _, name := range columnar {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, _ := run(t, export.Config{Source: fixture(t), Format: name})
			data, _ := run(t, export.Config{Source: fixture(t), Format: name, Container: export.Parquet})
			again, _ := run(t, export.Config{Source: fixture(t), Format: name, Container: export.Parquet})
			if data != again {
				t.Error("the bytes of two runs differ")
			}
			f, err := parquet.OpenFile(strings.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			r := parquet.NewReader(f)
			defer func() { _ = r.Close() }()
			var rows []any
			for {
				row := map[string]any{}
				if err := r.Read(&row); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, row)
			}
			if diff := cmp.Diff(jsonRows(t, text), normal(t, rows)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// jsonRows are the rows of a file of JSON lines.
func jsonRows(tb testing.TB, text string) (rows []any) {
	tb.Helper()
	for line := range strings.Lines(text) {
		var row any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, prune(row))
	}
	return rows
}

// normal is rows as JSON would have them.
func normal(tb testing.TB, rows []any) []any {
	tb.Helper()
	var out []any
	for _, row := range rows {
		raw, err := json.Marshal(row)
		if err != nil {
			tb.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			tb.Fatal(err)
		}
		out = append(out, prune(v))
	}
	return out
}

// prune drops what JSON leaves out and a column cannot, the empty text, and what
// readers show in different ways, null.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value == nil || value == "" {
				delete(v, key)
				continue
			}
			v[key] = prune(value)
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

// readParquet prints the rows of a Parquet file as JSON lines.
const readParquet = `
import json, sys
import pyarrow.parquet as pq
for path in sys.argv[1:]:
    print(json.dumps(pq.read_table(path).to_pylist()))
`

// TestAnotherImplementationReadsParquet reads every file with Arrow.
func TestAnotherImplementationReadsParquet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	python, err := pythonWithArrow(ctx)
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	dir := t.TempDir()
	args := []string{"-c", readParquet}
	var want [][]any
	for _, name := range columnar {
		text, _ := run(t, export.Config{Source: fixture(t), Format: name})
		want = append(want, jsonRows(t, text))
		path := filepath.Join(dir, name+".parquet")
		if _, err := export.ToFile(ctx, export.Config{Source: fixture(t), Format: name, Container: export.Parquet}, path); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	cmd := exec.CommandContext(ctx, python, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	i := 0
	for line := range bytes.Lines(out) {
		var rows []any
		if err := json.Unmarshal(line, &rows); err != nil {
			t.Fatal(err)
		}
		for k := range rows {
			rows[k] = prune(rows[k])
		}
		if diff := cmp.Diff(want[i], rows); diff != "" {
			t.Errorf("%s: %s", columnar[i], diff)
		}
		i++
	}
	if i != len(columnar) {
		t.Errorf("%d files read", i)
	}
}

// pythonWithArrow is a Python that has pyarrow: that on the PATH, or one in the
// user's cache, which is made where CI is set.
func pythonWithArrow(ctx context.Context) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("python3 is missing: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(cache, "polar", "pyarrow")
	own := filepath.Join(venv, "bin", "python")
	for _, p := range []string{python, own} {
		if exec.CommandContext(ctx, p, "-c", "import pyarrow.parquet").Run() == nil {
			return p, nil
		}
	}
	if os.Getenv("CI") != "true" {
		return "", errors.New("pyarrow is missing: pip install pyarrow, or set CI=true to have it installed in the user's cache folder")
	}
	if out, err := exec.CommandContext(ctx, python, "-m", "venv", venv).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a Python environment: %w: %s", err, out)
	}
	var last error
	for range 3 { // a registry can have a bad moment
		out, err := exec.CommandContext(ctx, own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pyarrow").CombinedOutput()
		if err == nil {
			return own, nil
		}
		last = fmt.Errorf("pip install pyarrow: %w: %s", err, out)
	}
	return "", last
}
