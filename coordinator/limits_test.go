package coordinator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"polar"
	"polar/api"
)

// chunks is a response that keeps the size of what it is given at once.
type chunks struct {
	httptest.ResponseRecorder
	largest, total int
}

func (c *chunks) Write(p []byte) (int, error) {
	c.largest, c.total = max(c.largest, len(p)), c.total+len(p)
	return c.ResponseRecorder.Write(p)
}

func TestResultsOfABigGroupAreStreamed(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.submit(task("a", 13))
	for range 12 {
		r := result(s.claim("n1", 1, 0).Sessions[0].Session)
		r.Metadata = map[string]json.RawMessage{"big": json.RawMessage(`"` + strings.Repeat("x", 500_000) + `"`)}
		s.report(r)
	}
	out := &chunks{ResponseRecorder: *httptest.NewRecorder()}
	s.ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), "GET", "/rollout/task/a", nil))
	if out.total < 6_000_000 || out.largest > 64<<10 {
		t.Errorf("%d bytes, up to %d at once", out.total, out.largest)
	}
	var status api.TaskStatus
	if err := json.Unmarshal(out.Body.Bytes(), &status); err != nil || len(status.Results) != 12 || status.Completed != 12 {
		t.Errorf("%d results, %v", len(status.Results), err)
	}
}

func TestFullDiskIsA507AndNothingIsLost(t *testing.T) {
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
	s := start(t, dir, nil)
	s.submit(task("first", 1))
	held := s.claim("n1", 1, 0).Sessions[0].Session
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	accepted := []string{"first"}
	var refused api.Error
	for i := range 200 {
		id := fmt.Sprint("t", i)
		rec := s.do("POST", "/rollout/task/submit", task(id, 1, `"metadata":{"x":"`+strings.Repeat("y", 8000)+`"}`))
		switch rec.Code {
		case http.StatusOK:
			accepted = append(accepted, id)
		case http.StatusInsufficientStorage:
			if err := json.Unmarshal(rec.Body.Bytes(), &refused); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
	}
	if !strings.Contains(refused.Detail, "no space left in the data folder "+dir) {
		t.Errorf("refused with %q", refused.Detail)
	}
	if err := s.Report(t.Context(), result(held)); !errors.Is(err, api.ErrNoSpace) {
		t.Errorf("report on a full disk: %v", err)
	}
	want[api.Health](s, http.StatusServiceUnavailable, "GET", "/health", "")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	want[api.Health](s, http.StatusOK, "GET", "/health", "")
	s.report(result(held))
	s.runAll()
	for _, id := range accepted {
		if got := want[api.TaskStatus](s, 200, "GET", "/rollout/task/"+id, ""); got.Status != api.TaskCompleted || len(got.Results) != 1 {
			t.Errorf("task %s: %+v", id, got)
		}
	}
	s.stop()
}

func TestReportMustBeAnEnd(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.submit(task("a", 1))
	r := result(s.claim("n1", 1, 0).Sessions[0].Session)
	r.Status = polar.Running
	if err := s.Report(t.Context(), r); err == nil {
		t.Error("a session that runs was taken for one that ended")
	}
	r.Status, r.Session = polar.Completed, "nobody.0"
	if err := s.Report(t.Context(), r); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("unknown session: %v", err)
	}
	for status, field := range map[polar.Status]string{polar.Completed: "renewals[0].status", "SLEEPING": "renewals[0].status"} {
		_, err := s.Renew(t.Context(), api.RenewRequest{Node: api.NodeInfo{Node: "n1"}, Renewals: []api.Renewal{{Session: "a.0", Attempt: 1, Status: status}}})
		if bad, ok := errors.AsType[*polar.FieldError](err); !ok || bad.Field != field {
			t.Errorf("renewal as %s: %v", status, err)
		}
	}
}
