package trajectory

import "testing"

func TestEqualArgumentsAreOneText(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		a, b string
		same bool
	}{
		"members in another order":        {`{"b": 1, "a": "<"}`, `{"a":"\u003c","b":1}`, true},
		"a zero at the end of a fraction": {`{"n": 1.50}`, `{"n":1.5}`, true},
		"a fraction of nothing":           {`[3.0, -0.0]`, `[3,0]`, true},
		"an exponent":                     {`[1e2, 1.5E-3]`, `[100,0.0015]`, true},
		"numbers that differ":             {`[1.5]`, `[1.05]`, false},
		"signs that differ":               {`[1]`, `[-1]`, false},
		"long numbers that are one float": {`[9007199254740993]`, `[9007199254740992]`, false},
		"exponents out of all bounds":     {`[1e99999999999999999999]`, `[1e99999999999999999998]`, false},
		"a number and its text":           {`["1.50"]`, `["1.5"]`, false},
		"numbers deep inside":             {`{"a":[{"b":2.50}]}`, `{"a":[{"b":2.5}]}`, true},
		"what is no JSON":                 {`{"a": 1.50`, `{"a": 1.5`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if a, b := canonicalArguments(tt.a), canonicalArguments(tt.b); (a == b) != tt.same {
				t.Errorf("%s became %s, %s became %s", tt.a, a, tt.b, b)
			}
		})
	}
}
