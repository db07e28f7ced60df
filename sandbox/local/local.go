// Package local runs sandboxes as child processes on this machine. It keeps
// sessions apart by folder, environment and process session, and ends all they
// started; it is no barrier against code that means harm. For that, use
// containers.
package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"polar/sandbox"
)

// Config says where sandboxes live and what they may reach.
type Config struct {
	// Dir holds one folder per sandbox. It must be new, empty or one of ours:
	// Sweep empties it.
	Dir string `json:"dir"`
	// Path is the PATH of every command; empty means the system's usual one.
	Path string `json:"path"`
	// AllowedHostPaths are the folders that a work folder may lie in.
	AllowedHostPaths []string `json:"allowed_host_paths"`
	// GraceSeconds is how long a cancelled command may take to end by itself
	// after SIGTERM before it is killed; 0 means 2.
	GraceSeconds float64 `json:"grace_seconds"`
	// MaxUploadBytes and MaxUploadFiles bound one upload; 0 means 16 GiB and
	// 1,000,000.
	MaxUploadBytes int64 `json:"max_upload_bytes"`
	MaxUploadFiles int   `json:"max_upload_files"`
}

const (
	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// ownedMark is the file that tells a folder of sandboxes from one that
	// merely was named by mistake.
	ownedMark = ".polar-sandboxes"
)

type driver struct {
	dir      string // absolute, symlinks resolved
	instance string
	path     string
	allowed  []string
	grace    time.Duration
	maxBytes int64
	maxFiles int
}

// New makes the folder, if need be, and returns the driver for it.
func New(c Config) (sandbox.Driver, error) {
	d, err := open(c)
	if err != nil {
		return nil, fmt.Errorf("open local sandboxes: %w", err)
	}
	return d, nil
}

func open(c Config) (*driver, error) {
	if c.Dir == "" {
		return nil, errors.New("dir: missing")
	}
	if c.GraceSeconds < 0 {
		return nil, errors.New("grace_seconds: must not be below 0")
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := realPath(c.Dir)
	if err != nil {
		return nil, err
	}
	if err := claim(dir); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(dir))
	d := &driver{
		dir:      dir,
		instance: hex.EncodeToString(sum[:8]),
		path:     c.Path,
		grace:    time.Duration(c.GraceSeconds * float64(time.Second)),
		maxBytes: c.MaxUploadBytes,
		maxFiles: c.MaxUploadFiles,
	}
	if d.path == "" {
		d.path = usualPath
	}
	if d.grace == 0 {
		d.grace = 2 * time.Second
	}
	if d.maxBytes == 0 {
		d.maxBytes = 16 << 30
	}
	if d.maxFiles == 0 {
		d.maxFiles = 1_000_000
	}
	for _, p := range c.AllowedHostPaths {
		host, err := realPath(p)
		if err != nil {
			return nil, fmt.Errorf("allowed_host_paths: %w", err)
		}
		d.allowed = append(d.allowed, host)
	}
	return d, nil
}

// claim marks dir as a folder of sandboxes. One that holds other things is
// refused, since Sweep would remove them.
func claim(dir string) error {
	mark := filepath.Join(dir, ownedMark)
	if _, err := os.Lstat(mark); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("dir: %s is not empty and not a folder of sandboxes; give a new one", dir)
	}
	return os.WriteFile(mark, nil, 0o600)
}

func realPath(p string) (string, error) {
	abs, err := filepath.Abs(p)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// Check refuses what a child process cannot be held to.
func (d *driver) Check(spec sandbox.Spec) error {
	const why = "the local backend runs plain processes on this machine; use a container backend"
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"runtime.image", spec.Image != ""},
		{"runtime.network", spec.Network != ""},
		{"runtime.allow_internet", spec.AllowInternet != nil && !*spec.AllowInternet},
		{"runtime.cpus", spec.CPUs != 0},
		{"runtime.memory_mb", spec.MemoryMB != 0},
		{"runtime.storage_mb", spec.StorageMB != 0},
		{"runtime.gpus", spec.GPUs != 0},
		{"runtime.kwargs.volumes", len(spec.Volumes) > 0},
	} {
		if f.set {
			return sandbox.Unsupported(f.name, "%s", why)
		}
	}
	if filepath.IsAbs(spec.Workdir) {
		_, err := d.hostWorkdir(spec.Workdir)
		return err
	}
	if spec.Workdir != "" && !filepath.IsLocal(spec.Workdir) {
		return sandbox.Unsupported("runtime.workdir", "%q leaves the sandbox", spec.Workdir)
	}
	return nil
}

// hostWorkdir resolves a work folder outside the sandbox.
func (d *driver) hostWorkdir(dir string) (string, error) {
	host, err := realPath(dir)
	if err != nil {
		return "", sandbox.Unsupported("runtime.workdir", "%s", reason(err, dir))
	}
	for _, root := range d.allowed {
		if within(root, host) {
			return host, nil
		}
	}
	return "", sandbox.Unsupported("runtime.workdir",
		"%s is not in an allowed host path; give a relative folder, none, or allow the path on the node", dir)
}

func reason(err error, dir string) string {
	if errors.Is(err, fs.ErrNotExist) {
		return dir + " is not there"
	}
	return err.Error()
}

// within reports whether path is root or below it. Both are clean.
func within(root, path string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// Start makes the folders of a sandbox.
func (d *driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if !plainName.MatchString(spec.ID) {
		return nil, fmt.Errorf("start sandbox: id %q is not a plain name", spec.ID)
	}
	if err := d.Check(spec); err != nil {
		return nil, err
	}
	base := filepath.Join(d.dir, spec.ID)
	if err := os.Mkdir(base, 0o700); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	s, err := d.furnish(base, spec)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start sandbox: %w", err), removeTree(base))
	}
	return s, nil
}

func (d *driver) furnish(base string, spec sandbox.Spec) (*place, error) {
	s := &place{
		driver: d,
		base:   base,
		marker: d.instance + "/" + spec.ID,
		env:    spec.Env,
		paths: sandbox.Paths{
			Home:    filepath.Join(base, "home"),
			Work:    filepath.Join(base, "work", spec.Workdir),
			Session: filepath.Join(base, "session"),
			Tools:   filepath.Join(base, "tools"),
		},
		tmp:      filepath.Join(base, "tmp"),
		sessions: map[int]bool{},
		closing:  make(chan struct{}),
	}
	if filepath.IsAbs(spec.Workdir) {
		dir, err := d.hostWorkdir(spec.Workdir)
		if err != nil {
			return nil, err
		}
		s.paths.Work = dir
	}
	for _, dir := range []string{
		s.paths.Home, s.paths.Work, s.paths.Tools, s.tmp,
		filepath.Join(s.paths.Session, "artifacts"), filepath.Join(s.paths.Session, "logs", "agent"),
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	for _, m := range spec.Mounts {
		if !plainName.MatchString(m.Name) {
			return nil, fmt.Errorf("mount %q: not a plain name", m.Name)
		}
		host, err := realPath(m.Host)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Name, err)
		}
		if err := os.Symlink(host, filepath.Join(s.paths.Tools, m.Name)); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Name, err)
		}
	}
	return s, nil
}

// Sweep ends the processes of an earlier server on the same folder and removes
// what it left there.
func (d *driver) Sweep(ctx context.Context) error {
	if err := endAll(ctx, trail{marker: d.instance + "/", folder: d.dir}); err != nil {
		return fmt.Errorf("sweep local sandboxes: %w", err)
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("sweep local sandboxes: %w", err)
	}
	for _, e := range entries {
		if e.Name() == ownedMark {
			continue
		}
		if err := removeTree(filepath.Join(d.dir, e.Name())); err != nil {
			return fmt.Errorf("sweep local sandboxes: %w", err)
		}
	}
	return nil
}

// removeTree removes a folder with all below it, also where a folder is not
// writable.
func removeTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
