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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"polar"
	"polar/export"
)

// jsonColumns are the columns that hold JSON text; all others are typed.
var jsonColumns = map[string][]string{
	"atif": {"steps", "subagent_trajectories"}, "dpo": {"chosen", "prompt", "rejected", "tools"}, "nemo_gym": {"response", "responses_create_params"},
	"polar": {"result"}, "sft": {"messages", "tools"}, "slime": {"metadata", "prompt"},
}

func TestParquetHasAllFormats(t *testing.T) {
	t.Parallel()
	for _, name := range export.Formats() {
		if err := export.Check(name, export.Parquet); err != nil {
			t.Error(err)
		}
	}
}

// TestParquetKeepsResultsByteForByte reads the text of the column as text.
func TestParquetKeepsResultsByteForByte(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]export.Filter{"whole": {}, "narrowed": {Role: []polar.Role{polar.RoleSubagent}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, _ := run(t, export.Config{Source: fixture(t), Format: "polar", Filter: filter})
			data, _ := run(t, export.Config{Source: fixture(t), Format: "polar", Filter: filter, Container: export.Parquet})
			rows, err := parquet.Read[struct {
				Result string `parquet:"result,json"`
			}](strings.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, row := range rows {
				got.WriteString(row.Result + "\n")
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// parseColumns puts values in the place of their text.
func parseColumns(tb testing.TB, format string, row map[string]any) {
	tb.Helper()
	for _, name := range jsonColumns[format] {
		if row[name] == nil {
			continue
		}
		text, ok := row[name].(string)
		if !ok {
			tb.Fatalf("%s is a %T, not text", name, row[name])
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			tb.Fatal(err)
		}
		row[name] = v
	}
}

// unfold makes of a row of Parquet the row of JSON.
func unfold(tb testing.TB, format string, row map[string]any) any {
	tb.Helper()
	if format != "polar" {
		return prune(row)
	}
	result, _ := row["result"].(map[string]any)
	for _, name := range []string{"session_id", "task_id", "status"} {
		if row[name] == nil || row[name] != result[name] {
			tb.Errorf("%s: the column has %v, the result %v", name, row[name], result[name])
		}
	}
	return prune(result)
}

// TestParquetReadsBackAsTheJSON reads each file with the library that wrote it,
// by the schema in the file alone. It parses columns of JSON itself.
func TestParquetReadsBackAsTheJSON(t *testing.T) {
	t.Parallel()
	for _, name := range export.Formats() {
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
			var columns []string
			for _, field := range f.Schema().Fields() {
				if field.Leaf() && field.Type().String() == "JSON" {
					columns = append(columns, field.Name())
				}
			}
			slices.Sort(columns)
			if diff := cmp.Diff(jsonColumns[name], columns); diff != "" {
				t.Error(diff)
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
			if diff := cmp.Diff(jsonRows(t, text), normal(t, name, rows)); diff != "" {
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
func normal(tb testing.TB, format string, rows []any) []any {
	tb.Helper()
	var out []any
	for _, row := range rows {
		raw, err := json.Marshal(row)
		if err != nil {
			tb.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			tb.Fatal(err)
		}
		out = append(out, unfold(tb, format, v))
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
	names := export.Formats()
	for _, name := range names {
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
		var rows []map[string]any
		if err := json.Unmarshal(line, &rows); err != nil {
			t.Fatal(err)
		}
		var got []any
		for _, row := range rows {
			parseColumns(t, names[i], row)
			got = append(got, unfold(t, names[i], row))
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("%s: %s", names[i], diff)
		}
		i++
	}
	if i != len(names) {
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
