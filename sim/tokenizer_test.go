package sim_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polar/sim"
)

func TestTextIsSplitIntoWordsThenBytes(t *testing.T) {
	t.Parallel()
	pair := func(s string) int32 { return 512 + int32(s[0])*128 + int32(s[1]) }
	triple := func(s string) int32 { return 16896 + (int32(s[0])*128+int32(s[1]))*128 + int32(s[2]) }
	for name, c := range map[string]struct {
		text string
		want []int32
	}{
		"a word of three letters":         {"cat", []int32{triple("cat")}},
		"a longer word":                   {"caterp", []int32{triple("cat"), triple("erp")}},
		"a rest of two":                   {"cater", []int32{triple("cat"), pair("er")}},
		"a space belongs to its word":     {"a is", []int32{'a', triple(" is")}},
		"digits and letters part":         {"ab12", []int32{pair("ab"), pair("12")}},
		"punctuation is a word":           {"a!?b", []int32{'a', pair("!?"), 'b'}},
		"white space is a word":           {"a\n\n b", []int32{'a', pair("\n\n"), pair(" b")}},
		"space before a digit":            {"a 1", []int32{'a', ' ', '1'}},
		"other bytes stand alone":         {"né", []int32{'n', 0xc3, 0xa9}},
		"a special token in text is text": {"<think>", []int32{'<', triple("thi"), pair("nk"), '>'}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, sim.Encode(nil, c.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSpecialTokensAreReadOnlyWhereAsked(t *testing.T) {
	t.Parallel()
	const text = "a<|im_end|><tool_call>b<|im_en"
	got := sim.EncodeSpecial(nil, text)
	want := slices.Concat([]int32{'a', sim.EndOfTurn, sim.StartOfToolCall}, sim.Encode(nil, "b<|im_en"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if slices.ContainsFunc(sim.Encode(nil, text), sim.IsSpecial) {
		t.Error("Encode made a special token of text")
	}
	if string(sim.Decode(got)) != text {
		t.Errorf("decoded to %q", sim.Decode(got))
	}
}

func TestDecodingUndoesEncoding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~\n]*`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		checkRoundTrip(t, text, rapid.Uint64().Draw(t, "seed"))
	})
}

func FuzzDecodingUndoesEncoding(f *testing.F) {
	for _, s := range []string{"", "hello world", "a  b\n\n c", "né ☃", "<|im_end|>", "\xff\x00", "x1 2!"} {
		f.Add(s, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) { checkRoundTrip(t, text, seed) })
}

func checkRoundTrip(t rapid.TB, text string, seed uint64) {
	canonical := sim.Encode(nil, text)
	other := sim.EncodeNoncanonical(nil, text, 1, rand.New(rand.NewPCG(seed, 0)))
	for name, ids := range map[string][]int32{"canonical": canonical, "special": sim.EncodeSpecial(nil, text), "noncanonical": other} {
		if got := string(sim.Decode(ids)); got != text {
			t.Fatalf("%s tokens %v decode to %q, want %q", name, ids, got, text)
		}
		if !slices.ContainsFunc(ids, func(id int32) bool { return !sim.IsToken(id) }) {
			continue
		}
		t.Fatalf("%s tokens %v are not all in the vocabulary", name, ids)
	}
	if slices.ContainsFunc(canonical, func(id int32) bool { return id >= 512 }) && slices.Equal(canonical, other) {
		t.Fatalf("tokens %v could be others but are not", canonical)
	}
}

func TestNoncanonicalTokensComeAsOftenAsAsked(t *testing.T) {
	t.Parallel()
	const text = "some words that are long enough to be split in more than one way "
	canonical := sim.Encode(nil, text)
	differ := func(share float64) (n int) {
		for seed := range uint64(200) {
			if !slices.Equal(canonical, sim.EncodeNoncanonical(nil, text, share, rand.New(rand.NewPCG(seed, 0)))) {
				n++
			}
		}
		return n
	}
	if n := differ(0); n != 0 {
		t.Errorf("share 0 differs %d times", n)
	}
	if n := differ(0.02); n < 10 || n > 100 {
		t.Errorf("share 0.02 of 14 words differs %d times in 200", n)
	}
	if n := differ(1); n != 200 {
		t.Errorf("share 1 differs %d times in 200", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	text := string(sim.Decode(sim.Encode(nil, longText(60_000))))
	b.SetBytes(int64(len(text)))
	var ids []int32
	for b.Loop() {
		ids = sim.Encode(ids[:0], text)
	}
}
