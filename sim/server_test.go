package sim_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"polar/sim"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// parse makes a configuration of YAML.
func parse(tb testing.TB, yaml string) sim.Config {
	tb.Helper()
	c, err := sim.Parse([]byte(yaml))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func start(tb testing.TB, c sim.Config) *sim.Server {
	tb.Helper()
	s, err := sim.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// ask sends a body without a socket.
func ask(tb testing.TB, s http.Handler, path, body string) *httptest.ResponseRecorder {
	tb.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

const chatPath = "/v1/chat/completions"

// answered is an answer put together from either form of the wire.
type answered struct {
	Text, Reasoning string
	Calls           []string // name and arguments
	IDs             []string // of the calls
	Prompt, Tokens  []int32
	Logprobs        []float32
	LogprobTokens   []string
	TopLogprobs     []int // how many for each token
	Finish          string
	StopReason      any
	Usage           *usage
	Message         json.RawMessage // to send back
	Done            bool            // [DONE] came
	Chunks          int
}

type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Sampled int `json:"completion_tokens"`
	Total   int `json:"total_tokens"`
}

type wireMessage struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content"`
	Reasoning string  `json:"reasoning,omitempty"`
	ToolCalls []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls,omitempty"`
}

type wire struct {
	Choices []struct {
		Delta    *wireMessage `json:"delta"`
		Message  *wireMessage `json:"message"`
		Logprobs *struct {
			Content []struct {
				Token   string            `json:"token"`
				Logprob float64           `json:"logprob"`
				Top     []json.RawMessage `json:"top_logprobs"`
			} `json:"content"`
		} `json:"logprobs"`
		Finish     *string `json:"finish_reason"`
		StopReason any     `json:"stop_reason"`
		TokenIDs   []int32 `json:"token_ids"`
	} `json:"choices"`
	Usage  *usage  `json:"usage"`
	Prompt []int32 `json:"prompt_token_ids"`
}

// read decodes a reply with encoding/json, so as to check what is written by
// hand.
func read(tb testing.TB, contentType string, body io.Reader) answered {
	tb.Helper()
	var out answered
	var calls []struct{ name, arguments, id string }
	add := func(data []byte) {
		var w wire
		if err := json.Unmarshal(data, &w); err != nil {
			tb.Fatalf("%s: %v", data, err)
		}
		out.Chunks++
		if w.Prompt != nil {
			out.Prompt = w.Prompt
		}
		if w.Usage != nil {
			out.Usage = w.Usage
		}
		for _, c := range w.Choices {
			m := c.Delta
			if m == nil {
				m = c.Message
			}
			if m.Content != nil {
				out.Text += *m.Content
			}
			out.Reasoning += m.Reasoning
			for i, tc := range m.ToolCalls {
				if c.Message != nil {
					tc.Index = i
				}
				for len(calls) <= tc.Index {
					calls = append(calls, struct{ name, arguments, id string }{})
				}
				calls[tc.Index].name += tc.Function.Name
				calls[tc.Index].arguments += tc.Function.Arguments
				calls[tc.Index].id += tc.ID
			}
			out.Tokens = append(out.Tokens, c.TokenIDs...)
			if c.Logprobs != nil {
				for _, l := range c.Logprobs.Content {
					if float64(float32(l.Logprob)) != l.Logprob {
						tb.Errorf("logprob %v is not a float32", l.Logprob)
					}
					out.Logprobs = append(out.Logprobs, float32(l.Logprob))
					out.LogprobTokens = append(out.LogprobTokens, l.Token)
					out.TopLogprobs = append(out.TopLogprobs, len(l.Top))
				}
			}
			if c.Finish != nil {
				out.Finish, out.StopReason = *c.Finish, c.StopReason
			}
		}
	}
	if strings.HasPrefix(contentType, "text/event-stream") {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			switch {
			case !ok:
			case data == "[DONE]":
				out.Done = true
			default:
				add([]byte(data))
			}
		}
	} else {
		data, err := io.ReadAll(body)
		if err != nil {
			tb.Fatal(err)
		}
		add(data)
	}
	message := map[string]any{"role": "assistant", "content": out.Text, "reasoning": out.Reasoning}
	var list []any
	for _, c := range calls {
		out.Calls = append(out.Calls, c.name+" "+c.arguments)
		out.IDs = append(out.IDs, c.id)
		list = append(list, map[string]any{"id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": c.arguments}})
	}
	if list != nil {
		message["tool_calls"] = list
	}
	raw, err := json.Marshal(message)
	if err != nil {
		tb.Fatal(err)
	}
	out.Message = raw
	return out
}

func chat(tb testing.TB, s http.Handler, body string) answered {
	tb.Helper()
	w := ask(tb, s, chatPath, body)
	if w.Code != http.StatusOK {
		tb.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return read(tb, w.Header().Get("Content-Type"), w.Body)
}

var created = regexp.MustCompile(`"created":\d+`)

// TestWire pins the bytes of whole exchanges.
func TestWire(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]*txtar.File{}
			for i := range ar.Files {
				files[ar.Files[i].Name] = &ar.Files[i]
			}
			s := start(t, parse(t, string(files["policy.yaml"].Data)))
			w := ask(t, s, chatPath, string(files["request.json"].Data))
			got := created.ReplaceAll(w.Body.Bytes(), []byte(`"created":0`))
			got = append(bytes.TrimRight(got, "\n"), '\n')
			got = fmt.Appendf(nil, "%d %s\n%s", w.Code, w.Header().Get("Content-Type"), got)
			if *update {
				files["reply"].Data = got
				if err := os.WriteFile(path, txtar.Format(ar), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(files["reply"].Data), string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const toolRules = `
rules:
  - when: {tool_results: 0}
    think: ["A thought\nof two lines: é", "Another <thought>"]
    say: ["Here goes.", "Trying.\n"]
    shell: ["printf '%s\n' \"ü\" > f", 'cat f']
  - {think: Good., say: Done.}
`

const bashTool = `{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}}`

// request is a body with a conversation and further fields.
func request(messages, more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"model":"m","messages":[` + messages + `],"tools":[` + bashTool + `],"return_token_ids":true,"logprobs":true` + more + `}`
}

const hello = `{"role":"system","content":"Be brief."},{"role":"user","content":"Do it."}`

func TestAStreamSaysTheSameAsAWholeAnswer(t *testing.T) {
	t.Parallel()
	for _, chunk := range []int{1, 2, 7, 1000} {
		for _, noncanonical := range []float64{0, 1} {
			t.Run(fmt.Sprint(chunk, " tokens a chunk, noncanonical ", noncanonical), func(t *testing.T) {
				t.Parallel()
				c := parse(t, toolRules)
				c.ChunkTokens, c.Noncanonical = chunk, noncanonical
				s := start(t, c)
				for seed := range 8 {
					more := fmt.Sprintf(`"seed":%d`, seed)
					whole := chat(t, s, request(hello, more))
					streamed := chat(t, s, request(hello, more+`,"stream":true,"stream_options":{"include_usage":true}`))
					if !streamed.Done || whole.Done {
						t.Fatal("[DONE] belongs to a stream and ends it")
					}
					if want := 2 + (len(whole.Tokens)+chunk-1)/chunk; streamed.Chunks != want {
						t.Errorf("%d chunks, want %d", streamed.Chunks, want)
					}
					streamed.Done, streamed.Chunks = whole.Done, whole.Chunks
					if diff := cmp.Diff(whole, streamed); diff != "" {
						t.Fatal(diff)
					}
				}
			})
		}
	}
}

func TestTheAnswerIsWhatItsTokensSay(t *testing.T) {
	t.Parallel()
	for _, noncanonical := range []float64{0, 1} {
		c := parse(t, toolRules)
		c.Noncanonical = noncanonical
		a := chat(t, start(t, c), request(hello, `"stream":true,"stream_options":{"include_usage":true}`))
		if diff := cmp.Diff([]string{`bash {"command": "printf '%s\n' \"ü\" > f"}`, `bash {"command": "cat f"}`}, a.Calls); diff != "" {
			t.Error(diff)
		}
		text := a.Text + "\n"
		want := "<think>\n" + a.Reasoning + "\n</think>\n\n" + text
		for i, call := range a.Calls {
			if i > 0 {
				want += "\n"
			}
			want += "<tool_call>\n{\"name\": \"bash\", \"arguments\": " + strings.TrimPrefix(call, "bash ") + "}\n</tool_call>"
		}
		if got := string(sim.Decode(a.Tokens)); got != want+"<|im_end|>" {
			t.Errorf("tokens say\n%s\nwant\n%s", got, want)
		}
		if a.Tokens[len(a.Tokens)-1] != sim.EndOfTurn {
			t.Error("the end of the turn is not among the tokens")
		}
		if diff := cmp.Diff(&usage{Prompt: len(a.Prompt), Sampled: len(a.Tokens), Total: len(a.Prompt) + len(a.Tokens)}, a.Usage); diff != "" {
			t.Error(diff)
		}
		if len(a.Logprobs) != len(a.Tokens) {
			t.Fatalf("%d logprobs of %d tokens", len(a.Logprobs), len(a.Tokens))
		}
		for i, id := range a.Tokens {
			if want := strings.ToValidUTF8(string(sim.Decode([]int32{id})), "\ufffd"); a.LogprobTokens[i] != want {
				t.Errorf("token %d is named %q, want %q", id, a.LogprobTokens[i], want)
			}
		}
		if slices.ContainsFunc(a.Logprobs, func(l float32) bool { return !(l < 0 && l > -20) }) {
			t.Errorf("logprobs %v", a.Logprobs)
		}
		if a.Finish != "tool_calls" || a.StopReason != nil || a.IDs[0] == a.IDs[1] || a.IDs[0] == "" {
			t.Errorf("finish %q, stop reason %v, ids %q", a.Finish, a.StopReason, a.IDs)
		}
	}
}

func TestThePromptIsChatML(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Defaults())
	const messages = `{"role":"developer","content":"Rules."},{"role":"user","content":[{"type":"text","text":"Hi"}]},` +
		`{"role":"assistant","content":null,"reasoning_content":"Hm","tool_calls":[{"id":"1","type":"function","function":{"name":"bash","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"1","content":"<|im_end|>"},{"role":"system","content":"Hurry."}`
	a := chat(t, s, request(messages, ""))
	want := "<|im_start|>system\nRules.\n\nYou can call these tools:\n" + bashTool + "\n<|im_end|>\n" +
		"<|im_start|>user\nHi<|im_end|>\n" +
		"<|im_start|>assistant\n<think>\nHm\n</think>\n\n<tool_call>\n{\"name\": \"bash\", \"arguments\": {}}\n</tool_call><|im_end|>\n" +
		"<|im_start|>tool\n<|im_end|><|im_end|>\n<|im_start|>system\nHurry.<|im_end|>\n<|im_start|>assistant\n"
	if diff := cmp.Diff(want, string(sim.Decode(a.Prompt))); diff != "" {
		t.Error(diff)
	}
	ends := func(ids []int32) (n int) {
		for _, id := range ids {
			if id == sim.EndOfTurn {
				n++
			}
		}
		return n
	}
	c := sim.Defaults()
	c.ParseSpecial = true
	special := chat(t, start(t, c), request(messages, ""))
	if ends(a.Prompt) != 5 || ends(special.Prompt) != 6 {
		t.Errorf("%d ends of turn, and %d where text can be special; want 5 and 6", ends(a.Prompt), ends(special.Prompt))
	}
	off := chat(t, s, request(messages, `"chat_template_kwargs":{"enable_thinking":false}`))
	if !strings.HasSuffix(string(sim.Decode(off.Prompt)), "assistant\n<think>\n\n</think>\n\n") || off.Reasoning != "" {
		t.Error("enable_thinking false does not close the thinking at once")
	}
}

// TestTheNextPromptExtendsTheTurn is what a trainer relies on, and its
// exceptions are what polar is there for.
func TestTheNextPromptExtendsTheTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set    func(*sim.Config)
		extra  string // between the turn and the next request
		extend bool
	}{
		"as it is":                               {func(*sim.Config) {}, "", true},
		"not if tokens are not canonical":        {func(c *sim.Config) { c.Noncanonical = 1 }, "", false},
		"reasoning is kept after the user spoke": {func(c *sim.Config) { c.StripReasoning = true }, "", true},
		"not if reasoning before is stripped":    {func(c *sim.Config) { c.StripReasoning = true }, `,{"role":"user","content":"Go on."}`, false},
		"if it is not stripped":                  {func(*sim.Config) {}, `,{"role":"user","content":"Go on."}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := parse(t, toolRules)
			c.set(&config)
			s := start(t, config)
			for range 10 {
				first := chat(t, s, request(hello, `"stream":true`))
				var results string
				for _, id := range first.IDs {
					results += `,{"role":"tool","tool_call_id":"` + id + `","content":"ok"}`
				}
				second := chat(t, s, request(hello+","+string(first.Message)+results+c.extra, ""))
				turn := slices.Concat(first.Prompt, first.Tokens)
				extends := len(second.Prompt) > len(turn) && slices.Equal(second.Prompt[:len(turn)], turn)
				if extends != c.extend {
					t.Fatalf("extends: %v, want %v\n%s\n---\n%s", extends, c.extend, sim.Decode(turn), sim.Decode(second.Prompt))
				}
			}
		})
	}
}

func TestEqualSeedsGiveEqualAnswers(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, more string) (out []answered) {
		c := parse(t, toolRules)
		c.Seed, c.Noncanonical = seed, 0.5
		s := start(t, c)
		for range 4 {
			out = append(out, chat(t, s, request(hello, more)))
		}
		return out
	}
	one := run(1, "")
	if diff := cmp.Diff(one, run(1, "")); diff != "" {
		t.Errorf("a second start answers otherwise: %s", diff)
	}
	for i := range one {
		for j := range i {
			if slices.Equal(one[i].Tokens, one[j].Tokens) && slices.Equal(one[i].Logprobs, one[j].Logprobs) {
				t.Errorf("samples %d and %d are the same", i, j)
			}
		}
	}
	if cmp.Equal(one, run(2, "")) {
		t.Error("another seed answers the same")
	}
	for name, more := range map[string]string{"a seed": `"seed":5`, "temperature 0": `"temperature":0`} {
		same := run(1, more)
		for _, a := range same[1:] {
			if diff := cmp.Diff(same[0], a); diff != "" {
				t.Errorf("with %s: %s", name, diff)
			}
		}
	}
	if cmp.Equal(run(1, `"seed":5`)[0], run(1, `"seed":6`)[0]) {
		t.Error("another seed of the request answers the same")
	}
}

func TestFourSamplesAtOnceAreTheSameSet(t *testing.T) {
	t.Parallel()
	run := func() []string {
		s := start(t, parse(t, toolRules))
		out := make([]string, 8)
		var wg sync.WaitGroup
		for i := range out {
			wg.Go(func() { out[i] = fmt.Sprint(chat(t, s, request(hello, "")).Logprobs) })
		}
		wg.Wait()
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(run(), run()); diff != "" {
		t.Error(diff)
	}
}

func longText(bytes int) string {
	return strings.Repeat("The quick brown fox jumps over 13 lazy dogs; the end. ", bytes/54+1)[:bytes]
}
