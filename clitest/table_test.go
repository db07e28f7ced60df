package clitest_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// table collects what was seen: a row for each scenario and further wire, a
// column for each CLI.
type table struct {
	mu   sync.Mutex
	seen map[string]column // by harness
}

// column is what is known of a CLI: its version and wire, and a cell for each
// row.
type column struct {
	head  string
	cells map[string]string
}

func newTable() *table { return &table{seen: map[string]column{}} }

// enter notes what came of a trial. The version is empty of one that does not
// apply.
func (a *table) enter(c cli, s scenario, w wire, version, result string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.seen[c.harness]
	if seen.cells == nil {
		seen.cells = map[string]string{}
	}
	if version != "" {
		seen.head = fmt.Sprintf("%s %s (%s)", c.harness, version, c.wires[0].name)
	}
	seen.cells[row(s, c.wires[0], w)] = result
	a.seen[c.harness] = seen
}

// row is the label of a scenario over the usual wire of a CLI or another one.
func row(s scenario, usual, w wire) string {
	if w.name == usual.name {
		return s.tried
	}
	return s.tried + ", over " + w.name
}

// rowsOf are the rows that a CLI has something to say in.
func rowsOf(c cli) (rows []string) {
	for _, s := range scenarios() {
		rows = append(rows, s.tried)
		for _, w := range c.wires[1:] {
			if s.everyWire {
				rows = append(rows, row(s, c.wires[0], w))
			}
		}
	}
	return rows
}

const (
	tableBegin = "<!-- The table is written by: go test ./clitest -update-table -->\n"
	tableEnd   = "<!-- The table ends. -->\n"
)

// check holds the table of the docs against what was seen. Of a CLI of which not
// everything was seen, the rest stays as it is.
func (a *table) check(t *testing.T) {
	t.Helper()
	path := filepath.Join("..", "docs", "harnesses.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	before, rest, ok := strings.Cut(string(data), tableBegin)
	old, after, ends := strings.Cut(rest, tableEnd)
	if !ok || !ends {
		t.Errorf("%s has no place for the table: the lines %q and %q", path, tableBegin, tableEnd)
		return
	}
	columns := readColumns(old)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range clis() {
		seen := a.seen[c.harness]
		switch whole := !slices.ContainsFunc(rowsOf(c), func(row string) bool { return seen.cells[row] == "" }); {
		case whole:
			columns[c.harness] = seen
		case !*updateTable && columns[c.harness].cells != nil:
			maps.Copy(columns[c.harness].cells, seen.cells)
		case *updateTable:
			t.Logf("the column of %s is left as it is: not everything was tried and came to what is expected", c.harness)
		}
	}
	switch now := writeColumns(columns); {
	case now == old:
	case *updateTable:
		if err := os.WriteFile(path, []byte(before+tableBegin+now+tableEnd+after), 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("%s says otherwise; run go test ./clitest -update-table (-docs +seen):\n%s", path, cmp.Diff(old, now))
	}
}

// readColumns reads a table by the first word of each column's head, which is
// the harness.
func readColumns(table string) map[string]column {
	columns := map[string]column{}
	var heads []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if heads == nil {
			heads = cells
		}
		for i, head := range heads[:min(len(heads), len(cells))] {
			if i == 0 || strings.HasPrefix(line, "|---") {
				continue
			}
			harness, _, _ := strings.Cut(head, " ")
			if columns[harness].cells == nil {
				columns[harness] = column{head: head, cells: map[string]string{}}
			}
			columns[harness].cells[cells[0]] = cells[i]
		}
	}
	return columns
}

// writeColumns writes the columns of the CLIs there are.
func writeColumns(columns map[string]column) string {
	var b strings.Builder
	b.WriteString("| tried |")
	of := slices.DeleteFunc(clis(), func(c cli) bool { return columns[c.harness].head == "" })
	for _, c := range of {
		fmt.Fprintf(&b, " %s |", columns[c.harness].head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(of)) + "\n")
	for _, s := range scenarios() {
		rows := []string{s.tried}
		for _, c := range of {
			for _, label := range rowsOf(c) {
				if strings.HasPrefix(label, s.tried+", over ") && !slices.Contains(rows, label) {
					rows = append(rows, label)
				}
			}
		}
		for _, label := range rows {
			fmt.Fprintf(&b, "| %s |", label)
			for _, c := range of {
				cell := columns[c.harness].cells[label]
				switch {
				case label == s.tried+", over "+c.wires[0].name: // its usual one, of which the first row tells
					cell = columns[c.harness].cells[s.tried]
				case cell == "":
					cell = "–"
				}
				fmt.Fprintf(&b, " %s |", cell)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestATableIsReadAsItWasWritten is what lets one CLI be tried alone.
func TestATableIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	columns := map[string]column{}
	for i, c := range clis() {
		columns[c.harness] = column{head: c.harness + " 1.0 (" + c.wires[0].name + ")", cells: map[string]string{}}
		for j, row := range rowsOf(c) {
			columns[c.harness].cells[row] = fmt.Sprintf("result %d of %d", j, i)
		}
	}
	once := writeColumns(columns)
	if again := writeColumns(readColumns(once)); again != once {
		t.Error(cmp.Diff(once, again))
	}
	for _, c := range clis() {
		for row, cell := range columns[c.harness].cells {
			if got := readColumns(once)[c.harness].cells[row]; got != cell {
				t.Errorf("%s, %s: %q, want %q", c.harness, row, got, cell)
			}
		}
	}
}
