package export_test

import (
	"io"
	"testing"

	"polar/export"
)

// BenchmarkExport reports tokens of traces exported per second on one core.
func BenchmarkExport(b *testing.B) {
	raw := synthetic(b, 1, 5000, 100)
	for _, tt := range []struct{ format, container string }{
		{"slime", export.JSONL}, {"slime", export.JSONLZstd}, {"verl", export.Parquet}, {"sft", export.JSONL}, {"polar", export.JSONL},
	} {
		b.Run(tt.format+"-"+tt.container, func(b *testing.B) {
			b.ReportAllocs()
			const results = 50
			for b.Loop() {
				c := export.Config{Source: endless{raw: raw, n: results, at: func(int64) {}}, Format: tt.format, Container: tt.container}
				if _, err := export.ToWriter(b.Context(), c, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*results*20_000/b.Elapsed().Seconds()/1e6, "Mtoken/s")
		})
	}
}
