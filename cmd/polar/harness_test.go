package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"polar/harness"
)

// TestLocksAreOfThePinnedVersions fails when a product's newest version is
// raised and its lock is not, and when a lock names a registry or leaves a
// package without a hash.
func TestLocksAreOfThePinnedVersions(t *testing.T) {
	t.Parallel()
	for _, c := range builtin("", nil).clis {
		if c.Source != harness.SourceNPM {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join("../../kit/locks", c.Name, "package-lock.json"))
			if err != nil {
				t.Fatal(err)
			}
			var lock struct {
				Packages map[string]struct {
					Version, Resolved, Integrity       string
					Dependencies, OptionalDependencies map[string]string
				}
			}
			if err := json.Unmarshal(data, &lock); err != nil {
				t.Fatal(err)
			}
			wanted := lock.Packages[""].Dependencies
			if wanted == nil {
				wanted = lock.Packages[""].OptionalDependencies
			}
			for name, version := range wanted {
				if version != c.Newest {
					t.Errorf("the lock asks for %s %s, the newest version tried is %s", name, version, c.Newest)
				}
				if got := lock.Packages["node_modules/"+name].Version; got != c.Newest {
					t.Errorf("the lock has %s %s, the newest version tried is %s", name, got, c.Newest)
				}
			}
			if len(wanted) == 0 {
				t.Error("the lock asks for nothing")
			}
			for name, p := range lock.Packages {
				if p.Resolved != "" {
					t.Errorf("%s: the lock names a registry: %s", name, p.Resolved)
				}
				if name != "" && p.Integrity == "" {
					t.Errorf("%s has no hash in the lock", name)
				}
			}
		})
	}
}
