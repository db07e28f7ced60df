package backend

import (
	"fmt"
	"strings"
	"testing"
)

func firstChunk(ids int) []byte {
	var b strings.Builder
	b.WriteString(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[`)
	for i := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, (i*7919)%151_936)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

const deltaChunk = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763000000,"model":"m","choices":[{"index":0,"delta":{"content":" hello"},"logprobs":{"content":[{"token":" hello","logprob":-0.12345678,"bytes":[32,104,101,108,108,111],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[23811]}]}`

func TestAChunkIsReadWithFewAllocations(t *testing.T) {
	var c chunk
	data := []byte(deltaChunk)
	if n := testing.AllocsPerRun(100, func() {
		if err := c.parse(data); err != nil {
			t.Fatal(err)
		}
	}); n > 40 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChunk(b *testing.B) {
	for name, data := range map[string][]byte{
		"first of 60k prompt ids": firstChunk(60_000),
		"delta":                   []byte(deltaChunk),
	} {
		b.Run(name, func(b *testing.B) {
			var c chunk
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := c.parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
