package clitest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/api"
	"polar/sim"
)

// outcome is what comes of a session.
type outcome struct {
	// result says it in the table.
	result string
	// end is the status and, of one that failed, blame and kind.
	end string
	// attempt is the one that ended; 0 means the first.
	attempt int
	// traces are those of the result, as role/segment, why it was begun, and how
	// many calls are in it.
	traces []string
	// failed are the calls of all attempts that were not delivered, by what
	// became of them.
	failed []string
}

// sighting looks at everything that came of a trial.
type sighting struct {
	rig      *rig
	wire     string
	scenario scenario
	known    map[int]bool // numbers of the simulator's calls that are recorded
}

// session looks at one session: what came of it, and what must hold whatever
// did.
func (s *sighting) session(t *testing.T, r polar.Result, want outcome, n int) {
	t.Helper()
	got := outcome{end: string(r.Status), attempt: r.Attempt}
	if r.Failure != nil {
		got.end += fmt.Sprintf(" %s %s", r.Failure.Blame, r.Failure.Kind)
	}
	for _, trace := range r.Trajectory.Traces {
		got.traces = append(got.traces, fmt.Sprintf("%s/%d %s calls=%d", trace.Role, trace.Segment, trace.SplitReason, len(trace.Calls)))
	}
	for attempt := 1; attempt <= r.Attempt; attempt++ {
		calls := s.rig.calls(t, r.Session, attempt)
		got.failed = append(got.failed, s.recorded(t, calls)...)
		if attempt == r.Attempt {
			checkTrained(t, r, calls)
		}
		s.checkPrivate(t, fmt.Sprintf("the calls of %s", r.Session), calls, n)
	}
	if data, err := json.Marshal(s.rig.calls(t, r.Session, r.Attempt)); err != nil || !bytes.Contains(data, []byte(s.scenario.seen)) {
		t.Errorf("the calls of %s have no %q in them: %v", r.Session, s.scenario.seen, err)
	}
	want.result, want.attempt = "", max(want.attempt, 1)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("%s came to (-want +got):\n%s\nfailure: %+v\nas it is written down:\n%s", r.Session, diff, r.Failure, got.written())
	}
	completed := r.Status == polar.Completed
	if reward := r.Trajectory.Reward(); completed && (reward == nil || *reward != 1) {
		t.Errorf("the files are not as asked for: %s", r.Trajectory.Metadata["evaluation"])
	} else if r.Failure != nil && r.Failure.Blame == polar.BlameService && reward != nil {
		t.Errorf("a failure of the service has the reward %v", *reward)
	}
	if used := harnessOf(t, r); used.Name == "" || used.Version == "" || used.Warning != "" {
		t.Errorf("metadata.harness is %+v", used)
	}
	s.checkArtifacts(t, r, n)
}

// written is an outcome as a test has it.
func (o outcome) written() string {
	list := func(name string, of []string) string {
		if len(of) == 0 {
			return ""
		}
		return fmt.Sprintf(", %s: %#v", name, of)
	}
	attempt := ""
	if o.attempt > 1 {
		attempt = fmt.Sprintf(", attempt: %d", o.attempt)
	}
	return fmt.Sprintf("outcome{end: %q%s%s%s}", o.end, attempt, list("traces", o.traces), list("failed", o.failed))
}

// recorded holds calls against the simulator's own record, token for token, and
// returns what became of those that were not delivered.
func (s *sighting) recorded(t *testing.T, calls []api.Call) (failed []string) {
	t.Helper()
	said := s.rig.simCalls(t)
	for _, c := range calls {
		if c.Wire != s.wire {
			t.Errorf("call %s came over %s, want %s", c.ID, c.Wire, s.wire)
		}
		if c.Delivered {
			if c.Error != nil || c.Untrainable != "" {
				t.Errorf("call %s was delivered with the error %+v, untrainable %q", c.ID, c.Error, c.Untrainable)
			}
			if n := s.claim(said, func(o sim.Recorded) bool { return o.Ended == sim.EndFinished && same(o, c, len(o.TokenIDs)) }); n == 0 {
				t.Errorf("call %s is not what the simulator said in any call", c.ID)
			}
			continue
		}
		what := "left"
		if c.Error != nil {
			what = string(c.Error.Kind)
		}
		failed = append(failed, what)
		if len(c.SampledIDs) > 0 {
			if n := s.claim(said, func(o sim.Recorded) bool { return same(o, c, len(c.SampledIDs)) }); n == 0 {
				t.Errorf("call %s, which failed, has other tokens than the simulator said in any call", c.ID)
			}
		}
	}
	return failed
}

// same reports whether a record has the prompt of a call and its first n tokens.
func same(o sim.Recorded, c api.Call, n int) bool {
	return len(c.SampledIDs) == n && len(o.TokenIDs) >= n && len(c.Logprobs) == n && slices.Equal(o.PromptIDs, c.PromptIDs) &&
		slices.Equal(o.TokenIDs[:n], c.SampledIDs) && slices.Equal(o.Logprobs[:n], c.Logprobs)
}

// claim finds a call of the simulator that no record was found for yet, and
// returns its number; 0 means that there is none.
func (s *sighting) claim(said []sim.Recorded, is func(sim.Recorded) bool) int {
	for _, o := range said {
		if !s.known[o.Number] && is(o) {
			if s.known == nil {
				s.known = map[int]bool{}
			}
			s.known[o.Number] = true
			return o.Number
		}
	}
	return 0
}

// checkTrained fails unless each token that was sampled in a delivered call is
// trained on exactly once, those of side calls and of failures of the service
// excepted.
func checkTrained(t *testing.T, r polar.Result, calls []api.Call) {
	t.Helper()
	sampled := map[polar.CallID]int{}
	for _, c := range calls {
		if c.Delivered {
			sampled[c.ID] = len(c.SampledIDs)
		}
	}
	ours := r.Failure != nil && r.Failure.Blame == polar.BlameService
	for _, trace := range r.Trajectory.Traces {
		want := 0
		for _, id := range trace.Calls {
			n, ok := sampled[id]
			if !ok {
				t.Errorf("call %s is in two traces or was not delivered", id)
			}
			want += n
			delete(sampled, id)
		}
		if trace.Role == polar.RoleAuxiliary || ours {
			want = 0
		}
		if got := trace.Trainable(); got != want {
			t.Errorf("%s (%s) trains on %d tokens of %d", trace.ID, trace.Role, got, want)
		}
	}
	for id := range sampled {
		t.Errorf("call %s was delivered and is in no trace", id)
	}
}

// checkPrivate fails if something has a value of the host's environment in it,
// or, of several sessions, what belongs to another.
func (s *sighting) checkPrivate(t *testing.T, what string, it any, n int) {
	t.Helper()
	data, ok := it.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(it); err != nil {
			t.Fatal(err)
		}
	}
	if i := bytes.Index(data, []byte(junk)); i >= 0 {
		t.Errorf("%s: the host's environment is in it: %q", what, data[max(0, i-80):min(len(data), i+80)])
	}
	for other := range s.scenario.sessions {
		if word := fmt.Sprintf("word-%d", other); other != n && bytes.Contains(data, []byte(word)) {
			t.Errorf("%s: it is session %d and has %s in it", what, n, word)
		}
	}
}

// checkArtifacts reads what was kept of the harness's own logs.
func (s *sighting) checkArtifacts(t *testing.T, r polar.Result, n int) {
	t.Helper()
	logs := 0
	for _, a := range r.Artifacts {
		content := s.rig.artifact(t, r.Session, a.Path)
		s.checkPrivate(t, a.Path, content, n)
		if !strings.Contains(a.Path, "agent/") {
			continue
		}
		if len(content) > 0 {
			logs++
		}
		if !strings.HasSuffix(a.Path, ".jsonl") {
			continue
		}
		for i, line := range bytes.Split(bytes.TrimSpace(content), []byte("\n")) {
			if !json.Valid(line) {
				t.Errorf("%s:%d is not JSON: %.200q", a.Path, i+1, line)
				break
			}
		}
	}
	if logs == 0 {
		t.Errorf("%s kept no log of the harness: %v", r.Session, r.Artifacts)
	}
}

// nothingElse looks at what must be so after all sessions: the simulator said
// nothing that is not recorded, the results are proven, nothing is left.
func (s *sighting) nothingElse(t *testing.T, results map[polar.TaskID]polar.Result) {
	t.Helper()
	lost := 0
	for _, o := range s.rig.simCalls(t) {
		if o.Number > s.rig.probes && !s.known[o.Number] && o.Ended != sim.EndRefused && o.Ended != sim.EndDropped {
			if lost++; lost == 1 && s.scenario.engine != engineStays { // the answer in which it died
				continue
			}
			t.Errorf("the simulator's call %d (%s) is not recorded: %.300q", o.Number, o.Ended, o.Text)
		}
	}
	args := []string{"verify", "--data-dir", s.rig.data}
	for _, r := range results {
		args = append(args, string(r.Session))
	}
	if out, err := exec.CommandContext(t.Context(), *polarBinary, args...).CombinedOutput(); err != nil {
		t.Errorf("polar %q: %v: %s", args, err, out)
	}
	left, err := os.ReadDir(filepath.Join(s.rig.data, "sandboxes", "local"))
	if err != nil {
		t.Error(err)
	}
	for _, entry := range left {
		if strings.HasPrefix(entry.Name(), ".polar-") { // says whose folder it is
			continue
		}
		t.Errorf("%s is left in the folder of sandboxes", entry.Name())
	}
	for _, process := range processesIn(t, s.rig.data) {
		t.Errorf("a process is left: %s", process)
	}
}
