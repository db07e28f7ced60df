package kit

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"polar/harness"
)

// locks has a folder per product, named after the harness: all packages of its
// newest version that was tried, each with its hash. No registry is named in
// them, so that they work with a mirror. To make one anew, change the version in
// package.json and run npm install --package-lock-only there, with the Node of
// locks/node. npm ci wants every optional package in the lock: one that is not
// in the registry, for platforms that polar is not for or of no use without a
// screen, is overridden with a package that is never installed here.
//
//go:embed all:locks
var locks embed.FS

// lock is what pins an installation. The zero value pins nothing.
type lock struct {
	files map[string][]byte
	// hash is that of all the files.
	hash string
}

// lockFor returns the lock of a product in one version; none for a version that
// is not the pinned one, and where the lock lacks this platform's program.
func lockFor(p harness.Product, version string) lock {
	if version != p.Newest {
		return lock{}
	}
	l := lock{files: map[string][]byte{}}
	sum := sha256.New()
	dir := path.Join("locks", p.Name)
	err := fs.WalkDir(locks, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := locks.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, dir+"/")
		l.files[name] = data
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
		return nil
	})
	if err != nil || p.Source == harness.SourceNPM && !recipes[p.Package].isIn(l) {
		return lock{}
	}
	l.hash = hex.EncodeToString(sum.Sum(nil))
	return l
}
