package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"polar"
	"polar/api"
	"polar/store"
)

// childEnv makes the test binary the process that is killed.
const childEnv = "POLAR_STORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := writeUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// writeUntilKilled runs tasks from many goroutines and says on stdout what has
// been acknowledged.
func writeUntilKilled(dir string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, "polar.db")})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				task := newTask(fmt.Sprintf("t-%d-%d", g, i), 2)
				if _, err := s.Enqueue(ctx, task); err != nil {
					return
				}
				fmt.Printf("task %s\n", task.ID)
				got, err := s.Claim(ctx, "n", 1, lease)
				if err != nil || len(got) == 0 {
					return
				}
				if _, err := s.Finish(ctx, outcome(got[0].Session, polar.Completed)); err != nil {
					return
				}
				fmt.Printf("result %s\n", got[0].Session.ID)
			}
		})
	}
	wg.Wait()
	return errors.New("a write failed")
}

func TestKilledProcessLosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		last := 20 + rand.IntN(200)
		var tasks, results []string
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == last {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			kind, id, ok := strings.Cut(lines.Text(), " ")
			switch {
			case ok && kind == "task":
				tasks = append(tasks, id)
			case ok && kind == "result":
				results = append(results, id)
			}
		}
		_ = cmd.Wait() // it was killed
		s := open(t, dir, newClock())
		for _, id := range tasks {
			if sum, err := s.Task(t.Context(), polar.TaskID(id)); err != nil || sum.Total != 2 {
				t.Errorf("round %d: task %s: %+v, %v", round, id, sum, err)
			}
		}
		for _, id := range results {
			rec, err := s.Session(t.Context(), polar.SessionID(id))
			if err != nil || rec.Result == nil || rec.Status != polar.Completed {
				t.Errorf("round %d: result %s: %+v, %v", round, id, rec, err)
			}
		}
		t.Logf("round %d: killed after %d tasks and %d results", round, len(tasks), len(results))
		if len(tasks) < 5 {
			t.Error("it was killed before it did anything")
		}
	}
}

func TestFullDiskIsSaidAndPasses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("polar-test", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, dir, newClock())
	blobs, err := store.OpenBlobs(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, newTask("before", 1))
	v := claim(t, s, "n", 1)[0]
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	full := 0
	for i := range 200 {
		task := newTask(fmt.Sprintf("during-%d", i), 1)
		task.Instruction = strings.Repeat("x", 4096)
		if _, err := s.Enqueue(t.Context(), task); err != nil {
			if !errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), "no space left in the data folder "+dir) {
				t.Fatalf("on a full disk: %v", err)
			}
			full++
		}
	}
	if full == 0 {
		t.Fatal("nothing failed on a full disk")
	}
	if _, _, err := blobs.Put(t.Context(), strings.NewReader(strings.Repeat("y", 1<<20))); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("blob on a full disk: %v", err)
	}
	if err := s.Health(t.Context()); !errors.Is(err, api.ErrNoSpace) {
		t.Errorf("health on a full disk: %v", err)
	}
	if sum, err := s.Task(t.Context(), "before"); err != nil || sum.Total != 1 {
		t.Errorf("reads on a full disk: %+v, %v", sum, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("health with room again: %v", err)
	}
	enqueue(t, s, newTask("after", 1))
	finish(t, s, v, polar.Completed)
	if left, err := os.ReadDir(filepath.Join(dir, "blobs", "tmp")); err != nil || len(left) != 0 {
		t.Errorf("unfinished blobs are left: %v, %v", left, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
