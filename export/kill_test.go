package export_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"polar/export"
)

// killedAt, in the environment, makes the test below the process that is killed.
const killedAt = "POLAR_TEST_EXPORT_TO"

func TestAKilledExportGoesOnToTheSameBytes(t *testing.T) {
	t.Parallel()
	config := export.Config{Source: many(t, 240, 20, 50), Format: "slime", Container: export.JSONLZstd, PieceBytes: 32 << 10}
	if path := os.Getenv(killedAt); path != "" {
		source := many(t, 240, 20, 50)
		source.stop = func(seq int64) error {
			if seq == 200 {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		}
		config.Source = source
		_, err := export.ToFile(t.Context(), config, path)
		t.Fatalf("it was not killed: %v", err)
	}
	dir := t.TempDir()
	whole, killed := filepath.Join(dir, "whole"), filepath.Join(dir, "killed")
	if _, err := export.ToFile(t.Context(), config, whole); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledExportGoesOnToTheSameBytes$")
	cmd.Env = append(os.Environ(), killedAt+"="+killed)
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the process ended by itself: %v", err)
	}
	if _, err := os.Stat(killed + ".part.state"); err != nil {
		t.Fatal(err)
	}
	config.Resume = true
	if _, err := export.ToFile(t.Context(), config, killed); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, whole), read(t, killed)) {
		t.Error("the bytes differ")
	}
}
