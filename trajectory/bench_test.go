package trajectory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"polar"
	"polar/llm"
)

// conversation is one that grows by an answer and what follows it at each call,
// kept as deltas or whole, coming back as sampled or re-rendered.
func conversation(n, answer, between int, whole, exact bool) []polar.Call {
	out := make([]polar.Call, 0, n)
	var flat llm.IDs
	var prompt *polar.Prompt
	word := int32(1000)
	add := make(llm.IDs, 0, answer+between)
	for i := range n {
		for range between {
			word++
			add = append(add, word)
		}
		if whole {
			flat = append(slices.Clip(flat), add...)
			prompt = polar.NewPrompt(nil, 0, flat)
		} else {
			prompt = polar.NewPrompt(prompt, prompt.Len(), add)
		}
		c := polar.Call{
			ID: polar.CallID(fmt.Sprintf("c%05d", i)), Start: time.Unix(int64(i), 0), Finish: llm.FinishStop,
			Delivered: true, Prompt: prompt, Engine: llm.Engine{Kind: "vllm"}, Sampled: make([]llm.Token, answer),
		}
		add = make(llm.IDs, 0, answer+between)
		for k := range c.Sampled {
			word++
			c.Sampled[k] = llm.Token{ID: word, Logprob: -1}
			if k == answer-1 {
				c.Sampled[k].ID = endOfTurn
			}
			if !exact && k == 0 {
				add = append(add, endOfTurn+1)
			} else {
				add = append(add, c.Sampled[k].ID)
			}
		}
		out = append(out, c)
	}
	return out
}

// BenchmarkPrefixMerging reports tokens of the built trace per second, and for
// whole prompts also the prompt tokens read.
func BenchmarkPrefixMerging(b *testing.B) {
	for _, bench := range []struct {
		name         string
		calls, size  int
		whole, exact bool
	}{
		{"1000calls-to-100k-delta", 1000, 100, false, true},
		{"1000calls-to-100k-whole", 1000, 100, true, true},
		{"1000calls-to-100k-drift", 1000, 100, false, false},
		{"4000calls-to-400k-delta", 4000, 100, false, true},
		{"4000calls-to-400k-drift", 4000, 100, false, false},
		{"100calls-to-1M-delta", 100, 10000, false, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			list := conversation(bench.calls, bench.size*2/5, bench.size*3/5, bench.whole, bench.exact)
			read := 0
			for _, c := range list {
				if bench.whole {
					read += c.Prompt.Len()
				}
			}
			benchmark(b, list, bench.calls*bench.size, read)
		})
	}
	b.Run("1000calls-of-100k-each-delta", func(b *testing.B) {
		benchmark(b, longHistory(1000, 100_000, false), 1000*100, 0)
	})
	b.Run("1000calls-of-100k-each-whole", func(b *testing.B) {
		benchmark(b, longHistory(1000, 100_000, true), 1000*100, 1000*100_000)
	})
}

// longHistory is calls that all have prompts of about size tokens, of which
// each adds 100.
func longHistory(n, size int, whole bool) []polar.Call {
	list := conversation(n, 40, 60, false, true)
	head := make(llm.IDs, size)
	for i := range head {
		head[i] = int32(5_000_000 + i)
	}
	last := polar.NewPrompt(nil, 0, head)
	for i := range list {
		last = polar.NewPrompt(last, last.Len(), list[i].Prompt.Added())
		list[i].Prompt = last
		if whole {
			list[i].Prompt = polar.NewPrompt(nil, 0, last.IDs())
		}
	}
	return list
}

func benchmark(b *testing.B, list []polar.Call, tokens, read int) {
	b.Helper()
	b.ReportAllocs()
	build := builder(b, "prefix_merging", "")
	for b.Loop() {
		tr, err := build(of(list))
		if err != nil || len(tr.Traces) != 1 {
			b.Fatal(err, len(tr.Traces))
		}
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(tokens)*float64(b.N)/seconds/1e6, "Mtoken/s")
	if read > 0 {
		b.ReportMetric(float64(read)*float64(b.N)/seconds/1e6, "Mread/s")
	}
}
