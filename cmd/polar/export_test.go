package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"polar/export"
)

// nothing is a source without results.
type nothing struct{}

func (nothing) Newest(context.Context) (int64, error) { return 0, nil }

func (nothing) Each(context.Context, int64, int64, func(export.Item) error) error { return nil }

func (nothing) Read(context.Context, string) (json.RawMessage, error) { return nil, io.EOF }

// TestExportWritesIntoWhatIsNoFile must never put a file in the place of a
// device or a pipe.
func TestExportWritesIntoWhatIsNoFile(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	go func() {
		b, err := os.ReadFile(pipe)
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	sum, err := writeExport(cmd, export.Config{Source: nothing{}, Format: "trl", Container: export.Parquet}, pipe)
	if err != nil {
		t.Fatal(err)
	}
	if b := <-got; int64(len(b)) != sum.Bytes || !bytes.HasPrefix(b, []byte("PAR1")) {
		t.Errorf("%d bytes came, %d were written", len(b), sum.Bytes)
	}
	if info, err := os.Stat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is now %v, %v", info.Mode(), err)
	}
}

func TestProgressIsALineEachTenthElsewhere(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newExportProgress(&out)
	for i := range int64(1000) {
		p.update(export.Progress{Done: i + 1, Total: 1000, Rows: int(i)})
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 10 || !bytes.HasSuffix(out.Bytes(), []byte("100%, 999 rows\n")) {
		t.Errorf("%d lines: %s", n, out.Bytes())
	}
}
