// Package protocoltest is what the tests of every wire format share: the golden
// files, which `go test -update` rewrites, and the parts of the contract that
// do not depend on the format.
package protocoltest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"polar/llm"
	"polar/rawjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Protocol is what of a wire format is tested here.
type Protocol interface {
	Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error
	Fail(w http.ResponseWriter, err *llm.Error)
}

// File is a golden file: a request with what it is read as, and the events of
// an answer with what they are written as.
type File struct {
	Path    string
	archive *txtar.Archive
}

// Files are the golden files of the package under test. There is at least one.
func Files(tb testing.TB) []File {
	tb.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		tb.Fatal("no golden files", err)
	}
	var files []File
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		files = append(files, File{path, a})
	}
	return files
}

// Title is the first line of the file.
func (f File) Title() string {
	title, _, _ := strings.Cut(string(f.archive.Comment), "\n")
	return title
}

// Request is the body of the request.
func (f File) Request() []byte { return f.Section("request.json") }

// Events are what an engine answers, for Play; nil if the file has no answer.
func (f File) Events() []byte { return f.Section("events.jsonl") }

// Section is the part of the file with a name, nil if it is not there.
func (f File) Section(name string) []byte {
	if i := f.index(name); i >= 0 {
		return f.archive.Files[i].Data
	}
	return nil
}

func (f File) index(name string) int {
	return slices.IndexFunc(f.archive.Files, func(s txtar.File) bool { return s.Name == name })
}

// Section is a part of a golden file that a test writes.
type Section struct{ Name, Text string }

// Golden compares each golden file with what write makes of its request and its
// events. With -update it puts that into the file instead, behind the rest where
// the file has no such section yet.
func Golden(t *testing.T, write func(t *testing.T, f File) []Section) {
	t.Helper()
	for _, f := range Files(t) {
		t.Run(strings.TrimSuffix(filepath.Base(f.Path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			for _, got := range write(t, f) {
				i := f.index(got.Name)
				switch {
				case *update && i < 0:
					f.archive.Files = append(f.archive.Files, txtar.File{Name: got.Name, Data: []byte(got.Text)})
				case *update:
					f.archive.Files[i].Data = []byte(got.Text)
				case i < 0:
					t.Errorf("no section %s", got.Name)
				default:
					if diff := cmp.Diff(string(f.archive.Files[i].Data), got.Text); diff != "" {
						t.Errorf("%s (-want +got)\n%s", got.Name, diff)
					}
				}
			}
			if *update && !t.Failed() {
				if err := os.WriteFile(f.Path, txtar.Format(f.archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Dump writes a request with every raw part as it is, a field a line.
func Dump(req llm.Request) string {
	var b strings.Builder
	line := func(name string, value any) {
		if raw, ok := value.(json.RawMessage); ok {
			if raw != nil {
				fmt.Fprintf(&b, "%s: %s\n", name, raw)
			}
			return
		}
		fmt.Fprintf(&b, "%s: %v\n", name, value)
	}
	line("model", req.Model)
	line("stream", req.Stream)
	if req.Previous != "" {
		line("previous", req.Previous)
	}
	if req.CountOnly {
		line("count only", true)
	}
	for _, m := range Messages(req) {
		line("message", m)
	}
	for _, tool := range req.Tools {
		line("tool", tool)
	}
	line("tool_choice", req.ToolChoice)
	line("parallel_tool_calls", req.ParallelToolCalls)
	line("response_format", req.ResponseFormat)
	sampling, err := json.Marshal(req.Sampling)
	if err != nil {
		return err.Error()
	}
	line("sampling", json.RawMessage(sampling))
	if req.TopLogprobs != nil {
		line("top_logprobs", *req.TopLogprobs)
	}
	for _, m := range req.Extra {
		line("extra "+m.Key, m.Value)
	}
	if req.Reply != nil {
		line("reply", fmt.Sprintf("%+v", req.Reply))
	}
	return b.String()
}

// Messages are the messages of a request as an engine is sent them.
func Messages(req llm.Request) []string {
	var out []string
	for _, m := range req.Messages {
		out = append(out, string(m.JSON("reasoning_content")))
	}
	return out
}

type event struct {
	KeepAlive bool                `json:"keep_alive"`
	More      bool                `json:"more"`
	PromptIDs llm.IDs             `json:"prompt_ids"`
	IDs       llm.IDs             `json:"ids"`
	Text      string              `json:"text"`
	Reasoning string              `json:"reasoning"`
	ToolCalls []llm.ToolCallDelta `json:"tool_calls"`
	Logprobs  json.RawMessage     `json:"logprobs"`
	Finish    string              `json:"finish"`
	Stop      string              `json:"stop"`
	Usage     *llm.Usage          `json:"usage"`
	Error     *llm.Error          `json:"error"`
}

// Play is an engine's answer, from lines that are an event each.
func Play(t *testing.T, lines []byte) iter.Seq2[llm.Event, error] {
	t.Helper()
	return func(yield func(llm.Event, error) bool) {
		for line := range strings.Lines(string(lines)) {
			var g event
			if err := json.Unmarshal([]byte(line), &g); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			e := llm.Event{
				KeepAlive: g.KeepAlive, More: g.More, PromptIDs: g.PromptIDs, Text: g.Text, Reasoning: g.Reasoning, ToolCalls: g.ToolCalls,
				Logprobs: g.Logprobs, Finish: g.Finish, Stop: g.Stop, Usage: g.Usage,
			}
			for _, id := range g.IDs {
				e.Tokens = append(e.Tokens, llm.Token{ID: id, Logprob: -1})
			}
			var err error
			if g.Error != nil {
				err = g.Error
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Reply is the answer that p writes of the events: a line with its status, its
// type and what Reply returned, and then the body, which must be JSON if it is
// no stream.
func Reply(t *testing.T, p Protocol, req llm.Request, events []byte) string {
	t.Helper()
	rec := httptest.NewRecorder()
	err := p.Reply(rec, req, Play(t, events))
	text := rec.Body.String()
	if !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/event-stream") {
		if err := rawjson.Valid([]byte(text)); err != nil {
			t.Errorf("not JSON: %v in %s", err, text)
		}
		text += "\n"
	}
	head := fmt.Sprintf("%d %s error=%v\n", rec.Code, rec.Header().Get("Content-Type"), err)
	if ignored := rec.Header().Get("X-Polar-Ignored-Tools"); ignored != "" {
		head += "X-Polar-Ignored-Tools: " + ignored + "\n"
	}
	return head + text
}

// BadRequest checks that err, of a Decode, blames a field for a reason.
func BadRequest(t *testing.T, err error, param, message string) {
	t.Helper()
	var got *llm.Error
	if !errors.As(err, &got) {
		t.Fatalf("got %v", err)
	}
	want := llm.Error{Kind: llm.BadRequest, Status: 400, Param: param, Message: message}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Fail checks how p shows an error, and returns the headers.
func Fail(t *testing.T, p Protocol, err *llm.Error, status int, retryAfter, body string) http.Header {
	t.Helper()
	rec := httptest.NewRecorder()
	p.Fail(rec, err)
	if rec.Code != status || rec.Header().Get("Retry-After") != retryAfter || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, headers %v", rec.Code, rec.Header())
	}
	if diff := cmp.Diff(body, rec.Body.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	return rec.Header()
}

// HidesErrors checks that an error that is not for the harness is returned and
// not shown. A stream that has nothing else has the status streamed, any other
// answer 500.
func HidesErrors(t *testing.T, p Protocol, streamed int) {
	t.Helper()
	secret := errors.New("/var/lib/secret: no such file")
	for stream, status := range map[bool]int{false: 500, true: streamed} {
		rec := httptest.NewRecorder()
		err := p.Reply(rec, llm.Request{Stream: stream}, func(yield func(llm.Event, error) bool) { yield(llm.Event{}, secret) })
		if !errors.Is(err, secret) {
			t.Errorf("stream %v: Reply says %v", stream, err)
		}
		if body := rec.Body.String(); rec.Code != status || !strings.Contains(body, "internal error") || strings.Contains(body, "secret") {
			t.Errorf("stream %v: %d %s", stream, rec.Code, body)
		}
	}
}

// Decoded checks what holds of every Decode: whatever is accepted can be
// written out again, and no error lacks what a harness needs of it. It reports
// whether the request was accepted.
func Decoded(t *testing.T, req llm.Request, err error, statuses ...int) bool {
	t.Helper()
	if err != nil {
		var e *llm.Error
		if !errors.As(err, &e) || !slices.Contains(statuses, e.Status) || e.Message == "" {
			t.Errorf("error %#v", err)
		}
		return false
	}
	for _, m := range req.Messages {
		for _, key := range []string{"reasoning", "reasoning_content"} { // engines differ in it
			if err := rawjson.Valid(m.JSON(key)); err != nil {
				t.Errorf("message: %v: %s", err, m.JSON(key))
			}
		}
	}
	for _, raw := range slices.Concat(req.Tools, []json.RawMessage{req.ToolChoice, req.ParallelToolCalls, req.ResponseFormat, req.Extra.Append(nil)}) {
		if raw != nil && rawjson.Valid(raw) != nil {
			t.Errorf("not JSON: %s", raw)
		}
	}
	if len(req.Tools) == 0 && req.ToolChoice != nil {
		t.Error("a choice among no tools")
	}
	return true
}
