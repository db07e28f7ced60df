package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"polar"
	"polar/calllog"
	"polar/llm"
	"polar/trajectory"
)

// conversation is a session whose prompts grow by add tokens a call, over a
// first prompt of start tokens. Each prompt repeats the one before it and its
// answer, as engines render them.
func conversation(calls, start, add, sampled int) []polar.Call {
	var out []polar.Call
	var prompt *polar.Prompt
	next := make(llm.IDs, start)
	for i := range next {
		next[i] = int32(i%50_000 + 300)
	}
	at := time.Unix(1_700_000_000, 0)
	for i := range calls {
		prompt = polar.NewPrompt(prompt, prompt.Len(), next)
		tokens := make([]llm.Token, sampled)
		for k := range tokens {
			tokens[k] = llm.Token{ID: int32(400 + (i+k)%1000), Logprob: -0.5}
		}
		tokens[sampled-1].ID = 2
		out = append(out, polar.Call{
			ID: polar.CallID(fmt.Sprintf("call-%06d", i+1)), Start: at.Add(time.Duration(i) * time.Second), Prompt: prompt,
			Sampled: tokens, Finish: llm.FinishStop, Delivered: true,
		})
		next = make(llm.IDs, 0, sampled+add)
		for _, t := range tokens {
			next = append(next, t.ID)
		}
		for k := range add {
			next = append(next, int32(5000+(i*7+k)%1000))
		}
	}
	return out
}

// builder measures prefix merging on one core.
func (b *bench) builder(context.Context) ([]figure, error) {
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	build, err := trajectory.PrefixMerging(trajectory.PrefixConfig{})
	if err != nil {
		return nil, err
	}
	timed := func(calls []polar.Call) (time.Duration, error) {
		best := time.Hour
		for range 10 {
			runtime.GC() // what came before is not to be paid for here
			start := time.Now()
			t, err := build(trajectory.Record{Calls: calls})
			if err != nil {
				return 0, err
			}
			if len(t.Traces) != 1 {
				return 0, fmt.Errorf("the conversation was split into %d traces", len(t.Traces))
			}
			best = min(best, time.Since(start))
		}
		return best, nil
	}
	flat := func(calls []polar.Call) []polar.Call {
		out := append([]polar.Call(nil), calls...)
		for i := range out {
			out[i].Prompt = polar.NewPrompt(nil, 0, out[i].Prompt.IDs())
		}
		return out
	}
	// Every token of every prompt counts: that is what merging reads.
	medium := flat(conversation(100, 2000, 400, 100))
	total := 0
	for _, c := range medium {
		total += c.Prompt.Len() + len(c.Sampled)
	}
	took, err := timed(medium)
	if err != nil {
		return nil, err
	}
	rate := float64(total) / took.Seconds() / 1e6
	long, err := timed(conversation(1000, 100_000, 150, 50))
	if err != nil {
		return nil, err
	}
	// The collector starts at some size of the heap: that is not the builder's growth.
	percent := debug.SetGCPercent(-1)
	var growth [3]time.Duration // of 500, 1,000 and 2,000 calls
	for i := range growth {
		if growth[i], err = timed(conversation(500<<i, 2000, 150, 50)); err != nil {
			return nil, err
		}
	}
	debug.SetGCPercent(percent)
	times := growth[2].Seconds() / growth[0].Seconds()
	calls := conversation(2000, 2000, 150, 50)
	last := calls[len(calls)-1]
	peak, err := allocated(func() error {
		_, err := build(trajectory.Record{Calls: calls})
		return err
	})
	if err != nil {
		return nil, err
	}
	perToken := float64(peak) / float64(last.Prompt.Len()+len(last.Sampled))
	return []figure{
		{what: "prefix merging, whole prompts", measured: fmt.Sprintf("%.0f M tokens/s per core", rate), bar: "≥ 20 M tokens/s per core", met: rate >= 20},
		{
			what: "prefix merging, 1,000 calls × 100k-token prompts", measured: short(long),
			bar: "< 2 s", met: long < 2*time.Second,
		},
		{
			what: "prefix merging, 500, 1,000 and 2,000 calls", measured: fmt.Sprintf("%s, %s, %s: × %.1f", short(growth[0]), short(growth[1]), short(growth[2]), times),
			bar: "< × 8 (linear × 4, quadratic × 16)", met: times < 8,
		},
		{
			what: "prefix merging, peak memory of 2,000 calls", measured: fmt.Sprintf("%.0f MB, %.0f bytes per token", float64(peak)/1e6, perToken),
			bar: "≤ 64 bytes per token of the trace", met: perToken <= 64,
		},
	}, nil
}

// allocated is how many bytes do takes: the most that it could hold at once.
func allocated(do func() error) (int64, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), err
}

// callLog measures what a long session holds in memory.
func (b *bench) callLog(ctx context.Context) ([]figure, error) {
	dir, err := os.MkdirTemp("", "polar-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log, err := calllog.Open(calllog.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	session, err := log.Session("bench.0", 1)
	if err != nil {
		return nil, err
	}
	calls := conversation(200, 20_000, 350, 50)
	prompts := make([]llm.IDs, len(calls))
	distinct := calls[len(calls)-1].Prompt.Len()
	for i := range calls {
		prompts[i] = calls[i].Prompt.IDs()
		calls[i].Session, calls[i].Attempt = "bench.0", 1
	}
	before := heap()
	for i := range calls {
		c := calls[i]
		c.Prompt = nil
		if err := session.Append(ctx, &c, prompts[i]); err != nil {
			return nil, err
		}
	}
	after := heap()
	runtime.KeepAlive(calls)
	runtime.KeepAlive(prompts)
	runtime.KeepAlive(session)
	perToken := float64(after-before) / float64(distinct)
	return []figure{{
		what:     fmt.Sprintf("memory of a 200-turn session with %dk tokens of context", distinct/1000),
		measured: fmt.Sprintf("%.1f bytes per distinct token", perToken),
		bar:      "≤ 8 bytes per distinct token",
		met:      perToken <= 8,
	}}, nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// controlPlane measures how fast tasks are taken and sessions are started.
func (b *bench) controlPlane(ctx context.Context) ([]figure, error) {
	r, err := b.newRig(ctx, newEngine(1, 1, 0))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	var starts []time.Duration
	for i := range 10 {
		stamp := filepath.Join(r.dataDir, fmt.Sprintf("stamp-%d", i))
		task := fmt.Sprintf(`{"task_id":"idle-%d","instruction":"x","agent":{"harness":"shell","custom_shell":{"command":"date +%%s%%N > %s"}}}`, i, stamp)
		begin := time.Now()
		if err := post(ctx, r.rollout+"/rollout/task/submit", []byte(task), &struct{}{}); err != nil {
			return nil, err
		}
		if err := r.ended(ctx, fmt.Sprintf("idle-%d", i)); err != nil {
			return nil, err
		}
		data, err := os.ReadFile(stamp)
		if err != nil {
			return nil, err
		}
		var ns int64
		if _, err := fmt.Sscan(string(data), &ns); err != nil {
			return nil, err
		}
		starts = append(starts, time.Unix(0, ns).Sub(begin))
	}
	begin := time.Now()
	for i := range 100 {
		task := fmt.Sprintf(`{"task_id":"many-%d","instruction":"x","num_samples":100,"agent":{"harness":"shell","custom_shell":{"command":"true"}}}`, i)
		if err := post(ctx, r.rollout+"/rollout/task/submit", []byte(task), &struct{}{}); err != nil {
			return nil, err
		}
	}
	took := time.Since(begin)
	idle := percentile(starts, 50)
	return []figure{
		{what: "10,000 sessions submitted (100 tasks × 100)", measured: short(took), bar: "< 5 s", met: took < 5*time.Second},
		{what: "idle submit → harness started, local (p50)", measured: short(idle), bar: "< 100 ms", met: idle < 100*time.Millisecond},
	}, nil
}

func (r *rig) ended(ctx context.Context, task string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var status struct {
			Status string `json:"status"`
		}
		if err := get(ctx, r.rollout+"/rollout/task/"+task+"?results=none", &status); err != nil {
			return err
		}
		if status.Status != "running" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// footprint is the size of the binary and of an idle server.
func (b *bench) footprint(ctx context.Context) ([]figure, error) {
	path, err := exec.LookPath(b.polar)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	r, err := b.newRig(ctx, newEngine(1, 1, 0))
	if err != nil {
		return nil, err
	}
	defer r.stop()
	idle, err := rss(r.polarPID)
	if err != nil {
		return nil, err
	}
	return []figure{
		{what: "size of the binary", measured: fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), bar: "< 60 MB", met: info.Size() < 60_000_000},
		{what: "memory of an idle polar serve", measured: fmt.Sprintf("%d MB", idle>>20), bar: "< 60 MB", met: idle < 60<<20},
	}, nil
}
