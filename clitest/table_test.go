package clitest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// table collects what was seen: a row for each scenario and wire, a column for
// each CLI.
type table struct {
	clis      []cli
	scenarios []scenario
	mu        sync.Mutex
	versions  map[string]string
	cells     map[[3]string]string // by harness, scenario, wire
}

func newTable(clis []cli, scenarios []scenario) *table {
	return &table{clis: clis, scenarios: scenarios, versions: map[string]string{}, cells: map[[3]string]string{}}
}

func (a *table) enter(c cli, s scenario, w wire, version, result string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if version != "" {
		a.versions[c.harness] = version
	}
	a.cells[[3]string{c.harness, s.name, w.name}] = result
}

const (
	tablePage  = "harnesses.md"
	tableBegin = "<!-- The table is written by: go test ./clitest -update-table -->\n"
	tableEnd   = "<!-- The table ends. -->\n"
)

// check holds the docs against what was seen, if everything was.
func (a *table) check(t *testing.T) {
	t.Helper()
	rows, whole := a.rows()
	if f := flag.Lookup("test.run"); t.Failed() || !whole || f != nil && f.Value.String() != "" {
		if *updateTable {
			t.Error("the table is not written: not everything was tried and came to what is expected")
		}
		return
	}
	path := filepath.Join("..", "docs", tablePage)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	before, rest, ok := strings.Cut(string(data), tableBegin)
	old, after, ends := strings.Cut(rest, tableEnd)
	switch {
	case !ok || !ends:
		t.Errorf("%s has no place for the table: the lines %q and %q", path, tableBegin, tableEnd)
	case *updateTable:
		if err := os.WriteFile(path, []byte(before+tableBegin+rows+tableEnd+after), 0o644); err != nil {
			t.Error(err)
		}
	case old != rows:
		t.Errorf("%s says otherwise; run go test ./clitest -update-table (-docs +seen):\n%s", path, cmp.Diff(old, rows))
	}
}

// rows is the table as Markdown; whole says that no cell is missing.
func (a *table) rows() (text string, whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	whole = true
	b.WriteString("| tried |")
	for _, c := range a.clis {
		fmt.Fprintf(&b, " %s %s (%s) |", c.harness, a.versions[c.harness], c.wires[0].name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(a.clis)) + "\n")
	for _, s := range a.scenarios {
		fmt.Fprintf(&b, "| %s |", s.tried)
		for _, c := range a.clis {
			cell, ok := a.cells[[3]string{c.harness, s.name, c.wires[0].name}]
			whole = whole && ok
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
		if s.everyWire {
			b.WriteString(a.otherWires(s, &whole))
		}
	}
	return b.String(), whole
}

// otherWires is a row for each wire that is the usual one of some CLI and not
// of another, or of none.
func (a *table) otherWires(s scenario, whole *bool) string {
	var names []string
	for _, c := range a.clis {
		for _, w := range c.wires[1:] {
			names = append(names, w.name)
		}
	}
	var b strings.Builder
	written := map[string]bool{}
	for _, name := range names {
		if written[name] {
			continue
		}
		written[name] = true
		fmt.Fprintf(&b, "| … over %s |", name)
		for _, c := range a.clis {
			cell := "–"
			for i, w := range c.wires {
				if i == 0 || w.name != name {
					continue
				}
				var ok bool
				cell, ok = a.cells[[3]string{c.harness, s.name, name}]
				*whole = *whole && ok
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
