package rawjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/rawjson"
)

func TestObjectKeepsOrderAndBytes(t *testing.T) {
	t.Parallel()
	const in = `{"z":1.0,"a":{"y":"<b>","x":1e3},"z2":[ 1, 2 ]}`
	o, err := rawjson.ParseObject([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(o.Append(nil)); got != in {
		t.Errorf("round trip:\n got %s\nwant %s", got, in)
	}
	o.Set("a", []byte("null"))
	o.Set("new", rawjson.Quote("<\n\"é\x01"))
	o.Delete("z2")
	want := `{"z":1.0,"a":null,"new":"<\n\"é\u0001"}`
	if got := string(o.Append(nil)); got != want {
		t.Errorf("edited:\n got %s\nwant %s", got, want)
	}
}

func TestGetTakesTheLastOfADoubledKey(t *testing.T) {
	t.Parallel()
	o, err := rawjson.ParseObject([]byte(`{"a":1,"a":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(o.Get("a")); got != "2" {
		t.Errorf("got %s, want 2", got)
	}
}

func TestIntsRejectsWhatIsNotAnID(t *testing.T) {
	t.Parallel()
	for _, in := range []string{``, `[`, `[1`, `[1,]`, `[1.5]`, `["1"]`, `[2147483648]`, `[99999999999999999999]`, `[1]x`, `{}`, `null`} {
		if got, err := rawjson.Ints(nil, []byte(in)); err == nil {
			t.Errorf("%s: got %v, want an error", in, got)
		}
	}
	got, err := rawjson.Ints(nil, []byte(" [ 1 ,2,\n-3, 2147483647 ] "))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{1, 2, -3, 2147483647}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDeepNestingIsAnErrorAndNotACrash(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 1_000_000)
	if err := rawjson.Valid([]byte(deep)); err == nil {
		t.Error("a million open brackets were taken for valid")
	}
}

// FuzzValid compares the walker with encoding/json: what it accepts must be
// JSON, and what it reads must be what the decoder reads.
func FuzzValid(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2,{"b":null}],"c":"\u00e9\n"}`, `[]`, `{}`, `-0.5e+10`, `"\ud83d"`, `tru`, `[1,,2]`, `{"a" 1}`, `01`, "\"\x01\"", `{"a":1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := rawjson.Valid(data)
		if ok := json.Valid(data); ok != (err == nil) {
			if !ok || bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) <= 1000 { // we nest less deep
				t.Fatalf("json.Valid says %v, Valid says %v", ok, err)
			}
		}
		if err != nil {
			return
		}
		if o, err := rawjson.ParseObject(data); err == nil {
			var want, got map[string]any
			if json.Unmarshal(data, &want) == nil {
				if err := json.Unmarshal(o.Append(nil), &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatal(diff)
				}
			}
		}
		if ids, err := rawjson.Ints(nil, data); err == nil {
			var want []int32
			if json.Unmarshal(data, &want) == nil && len(want)+len(ids) > 0 {
				if diff := cmp.Diff(want, ids); diff != "" {
					t.Fatal(diff)
				}
			}
		}
	})
}

func FuzzAppendString(f *testing.F) {
	f.Add("plain")
	f.Add("\x00<&>\u2028\xff\"\\")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(rawjson.AppendString(nil, s), &got); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); got != want && strings.ToValidUTF8(got, "") != strings.ToValidUTF8(want, "") {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func idArray(n int) []byte {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i*7919) % 151_936
	}
	return rawjson.AppendInts(nil, ids)
}

func BenchmarkInts60k(b *testing.B) {
	data := idArray(60_000)
	dst := make([]int32, 0, 60_000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := rawjson.Ints(dst, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMembersOfMegabyteBody(b *testing.B) {
	msg := fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat("some text of a file\n", 200))
	body := []byte(`{"model":"m","messages":[` + strings.Repeat(msg+",", 249) + msg + `],"stream":true}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := rawjson.ParseObject(body); err != nil {
			b.Fatal(err)
		}
	}
}

func TestIntsOfEveryLength(t *testing.T) {
	t.Parallel()
	var want []int32
	for n := int64(1); n <= math.MaxInt32; n = n*10 + n%7 {
		want = append(want, int32(n), int32(-n), int32(n-1))
	}
	for i := range int32(20_000) {
		want = append(want, i*107)
	}
	want = append(want, 0, 9, 10, 9_999_999, 10_000_000, math.MaxInt32, math.MinInt32+1)
	for _, data := range []string{
		string(rawjson.AppendInts(nil, want)),
		strings.ReplaceAll(string(rawjson.AppendInts(nil, want)), ",", ", "),
		strings.ReplaceAll(string(rawjson.AppendInts(nil, want)), ",", " ,\n "),
	} {
		got, err := rawjson.Ints(nil, []byte(data))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%.60s…: %d of %d, %v", data, len(got), len(want), err)
		}
	}
	for _, bad := range []string{"[1,2,x,4,5,6,7]", "[1,2,/3,4,5,6,7]", "[12345:,1,2,3]", "[1,2\x80,3,4,5,6]", "[1,,2,3,4,5,6]"} {
		if got, err := rawjson.Ints(nil, []byte(bad)); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
}
