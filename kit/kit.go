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
	"regexp"
	"runtime"
	"slices"

	"polar/harness"
)

// Folder holds kits, each in NAME/VERSION.
type Folder struct {
	Dir string
	// NPM is the npm that installs; empty means the one on the PATH.
	NPM string
}

// manifestName is the file that says what a kit is. It is written last: a
// folder without one is no kit.
const manifestName = "kit.json"

// manifest is the content of that file.
type manifest struct {
	Harness string `json:"harness"`
	Package string `json:"package"`
	Version string `json:"version"`
	// Program is the path of the command in the kit, with slashes.
	Program string `json:"program"`
	// Runtime is what the kit brings to run the program with, such as node
	// 22.23.3; empty if it needs nothing.
	Runtime string `json:"runtime,omitempty"`
	// Platform is the operating system and processor it is for.
	Platform string `json:"platform"`
	// Lock is the hash of the lock it was installed by; empty if by version alone.
	Lock string `json:"lock,omitempty"`
	// Bytes is the size of its files.
	Bytes int64 `json:"bytes"`
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

// exact is a version that names one release, and is safe as the name of a folder.
var exact = regexp.MustCompile(`^[0-9][0-9A-Za-z.+-]*$`)

// Find returns the kit of a product in one version; empty means the newest
// that was tried.
func (f Folder) Find(p harness.Product, version string) (harness.Kit, error) {
	wanted := p.Name
	if version == "" {
		version = p.Newest
	} else {
		wanted += "@" + version
	}
	if !exact.MatchString(version) {
		return harness.Kit{}, fmt.Errorf("%q is not a version of %s; name one like %s", version, p.Name, p.Newest)
	}
	dir := filepath.Join(f.Dir, p.Name, version)
	m, err := readManifest(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return harness.Kit{}, fmt.Errorf("%s %s is not installed; run polar harness install %s, or name a program of the sandbox in agent.settings.command", p.Name, version, wanted)
	case err != nil:
		return harness.Kit{}, fmt.Errorf("find %s: %w", p.Name, err)
	}
	if fault := m.fault(p, version); fault != "" {
		return harness.Kit{}, fmt.Errorf("%s %s %s; run polar harness install %s", p.Name, version, fault, wanted)
	}
	return harness.Kit{Dir: dir, Version: m.Version, Program: m.Program}, nil
}

func readManifest(dir string) (manifest, error) {
	name := filepath.Join(dir, manifestName)
	data, err := os.ReadFile(name)
	if err != nil {
		return manifest{}, err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return manifest{}, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// fault says why a kit is not what would be installed now; empty if it is.
func (m manifest) fault(p harness.Product, version string) string {
	switch {
	case m.Platform != platform:
		return "was installed for " + m.Platform + " and this is " + platform
	case m.Package != p.Package || m.Version != version:
		return "is " + m.Package + " " + m.Version
	case m.Lock != lockFor(p, version).hash:
		return "was installed by another version of polar"
	}
	return ""
}

// Installed is one kit that is there.
type Installed struct {
	Version string `json:"version"`
	Dir     string `json:"dir"`
	// Runtime is what it brings to run the program with, such as node 22.23.3.
	Runtime string `json:"runtime,omitempty"`
	Bytes   int64  `json:"bytes"`
	// Fault says why the kit is not used; installing it again mends that.
	Fault string `json:"fault,omitempty"`
}

// List returns the kits of a product, the newest version first.
func (f Folder) List(p harness.Product) ([]Installed, error) {
	entries, err := os.ReadDir(filepath.Join(f.Dir, p.Name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", p.Name, err)
	}
	var all []Installed
	for _, e := range entries {
		if !exact.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(f.Dir, p.Name, e.Name())
		m, err := readManifest(dir)
		one := Installed{Version: e.Name(), Dir: dir, Runtime: m.Runtime, Bytes: m.Bytes}
		if err != nil {
			one.Fault = "is broken: " + err.Error()
		} else {
			one.Fault = m.fault(p, e.Name())
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Installed) int { return harness.CompareVersions(b.Version, a.Version) })
	return all, nil
}
