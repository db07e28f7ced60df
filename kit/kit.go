// Package kit installs the CLIs that harness presets run. A kit is one folder
// with a CLI and the runtime it needs, so that a sandbox can mount it
// read-only as it is and the CLI runs with nothing else installed.
package kit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"polar/harness"
)

// Folder holds kits, each in NAME/VERSION.
type Folder struct {
	Dir string
}

// manifestName is the file that says what a kit is. It is written last: a
// folder without one is no kit.
const manifestName = "kit.json"

// manifest is the content of that file.
type manifest struct {
	Harness string `json:"harness"`
	Package string `json:"package"`
	Version string `json:"version"`
	// Program is the path of the command in the kit.
	Program string `json:"program"`
}

// Find returns the kit of a product in one version; empty means the newest
// that was tried.
func (f Folder) Find(p harness.Product, version string) (harness.Kit, error) {
	wanted := p.Name
	if version != "" {
		wanted += "@" + version
	} else {
		version = p.Newest
	}
	dir := filepath.Join(f.Dir, p.Name, version)
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return harness.Kit{}, fmt.Errorf("%s %s is not installed; run polar harness install %s, or name a program of the sandbox in agent.settings.command", p.Name, version, wanted)
	}
	if err != nil {
		return harness.Kit{}, fmt.Errorf("find %s: %w", p.Name, err)
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return harness.Kit{}, fmt.Errorf("find %s: %s: %w", p.Name, filepath.Join(dir, manifestName), err)
	}
	return harness.Kit{Dir: dir, Version: m.Version, Program: m.Program}, nil
}
