package harness_test

import (
	"cmp"
	"testing"

	"polar/harness"
)

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	// Each comes before the next.
	ordered := []string{"0.9", "0.9.1", "0.10.0-alpha.1", "0.10.0-alpha.9", "0.10.0-alpha.10", "0.10.0-beta", "0.10.0", "0.10.1", "1.0", "1.2.9", "1.10", "2026.8.1"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := cmp.Compare(harness.CompareVersions(a, b), 0); got != cmp.Compare(i, j) {
				t.Errorf("CompareVersions(%q, %q) = %d, want %d", a, b, got, cmp.Compare(i, j))
			}
		}
	}
	for a, b := range map[string]string{"1.2": "1.2.0", "1.2.3+linux": "1.2.3", "1.2.3-rc.1+a": "1.2.3-rc.1+b"} {
		if harness.CompareVersions(a, b) != 0 {
			t.Errorf("%s and %s differ", a, b)
		}
	}
}

func TestReadVersion(t *testing.T) {
	t.Parallel()
	for printed, want := range map[string]string{
		"1.18.33\n":                        "1.18.33",
		"codex-cli 0.166.0":                "0.166.0",
		"2.1.325 (Claude Code)\n":          "2.1.325",
		"pi 1.0.0-rc.1\n":                  "1.0.0-rc.1",
		"Python 3.12":                      "3.12",
		"no version here, only a number 7": "",
		"":                                 "",
	} {
		if got := harness.ReadVersion(printed); got != want {
			t.Errorf("ReadVersion(%q) = %q, want %q", printed, got, want)
		}
	}
}

func TestWarning(t *testing.T) {
	t.Parallel()
	some, one := harness.Product{Name: "tool", Oldest: "1.2.0", Newest: "1.10.0"}, harness.Product{Name: "tool", Oldest: "1.2.0", Newest: "1.2.0"}
	for name, c := range map[string]struct {
		product harness.Product
		version string
		want    string
	}{
		"the oldest":               {some, "1.2.0", ""},
		"one between":              {some, "1.9.5", ""},
		"the newest":               {some, "1.10.0", ""},
		"one that is older":        {some, "1.1.9", "tool 1.1.9 was not tried with this version of polar; 1.2.0 to 1.10.0 was"},
		"one that is newer":        {one, "1.2.1", "tool 1.2.1 was not tried with this version of polar; 1.2.0 was"},
		"one that is not known":    {one, "", "the version of tool is not known; 1.2.0 was tried"},
		"a product without limits": {harness.Product{Name: "tool"}, "7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.product.Warning(c.version); got != c.want {
				t.Errorf("Warning(%q) = %q, want %q", c.version, got, c.want)
			}
		})
	}
}
