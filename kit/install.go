package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"polar/harness"
)

// ErrUnreachable is in the errors of installations that found no installer on
// this machine, or no registry.
var ErrUnreachable = errors.New("unreachable")

// unreachable is an error of that kind with words of its own.
type unreachable string

func (e unreachable) Error() string        { return string(e) }
func (e unreachable) Is(target error) bool { return target == ErrUnreachable }

// unfinished starts the names of folders that are being filled.
const unfinished = ".installing-"

// Install makes sure that a product is there in one version; empty means the
// newest that was tried, which is pinned with all its packages. A kit is
// complete or not there at all; two installations at once wait for each other.
// note gets a line about each step.
func (f Folder) Install(ctx context.Context, p harness.Product, version string, note func(string)) (harness.Kit, error) {
	return f.install(ctx, p, version, note, false)
}

// Reinstall is Install for a kit that may be there: it is replaced once the new
// one is complete.
func (f Folder) Reinstall(ctx context.Context, p harness.Product, version string, note func(string)) (harness.Kit, error) {
	return f.install(ctx, p, version, note, true)
}

func (f Folder) install(ctx context.Context, p harness.Product, version string, note func(string), again bool) (harness.Kit, error) {
	if version == "" {
		version = p.Newest
	}
	if !exact.MatchString(version) {
		return harness.Kit{}, fmt.Errorf("install %s: %q is not a version; name one like %s", p.Name, version, p.Newest)
	}
	var err error
	if f.Dir, err = filepath.Abs(f.Dir); err != nil {
		return harness.Kit{}, fmt.Errorf("install %s: %w", p.Name, err)
	}
	if kit, err := f.Find(p, version); err == nil && !again {
		return kit, nil
	}
	unlock, err := f.lock(ctx, p.Name, note)
	if err != nil {
		return harness.Kit{}, fmt.Errorf("install %s: %w", p.Name, err)
	}
	defer unlock()
	if kit, err := f.Find(p, version); err == nil && !again {
		return kit, nil // another installation was quicker
	}
	if err := f.build(ctx, p, version, note); err != nil {
		return harness.Kit{}, fmt.Errorf("install %s %s: %w", p.Name, version, err)
	}
	return f.Find(p, version)
}

// build fills a new folder and puts it in place. The product is locked.
func (f Folder) build(ctx context.Context, p harness.Product, version string, note func(string)) error {
	home := filepath.Join(f.Dir, p.Name)
	sweep(home)
	dir, err := os.MkdirTemp(home, unfinished)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // the user in a container is another one
		return err
	}
	var m manifest
	switch p.Source {
	case harness.SourceNPM:
		m, err = f.installNPM(ctx, p, version, dir, note)
	case harness.SourcePyPI:
		m, err = f.installPython(ctx, p, version, dir, note)
	default:
		err = fmt.Errorf("registry %q is not known", p.Source)
	}
	if err != nil {
		return err
	}
	m.Harness, m.Package, m.Version, m.Platform, m.Lock = p.Name, p.Package, version, platform, lockFor(p, version).hash
	if m.Bytes, err = size(dir); err != nil {
		return err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, manifestName), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return place(dir, filepath.Join(home, version))
}

// place moves a finished kit to where it is found, over what is there.
func place(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		old := from + ".old"
		if err := os.Rename(to, old); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(old) }()
	}
	return os.Rename(from, to)
}

// sweep removes what interrupted installations left. The product is locked, so
// none is at work.
func sweep(home string) {
	entries, _ := os.ReadDir(home)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			_ = os.RemoveAll(filepath.Join(home, e.Name()))
		}
	}
}

// Remove deletes the kit of a product in one version. One that is not there is
// an error of fs.ErrNotExist.
func (f Folder) Remove(ctx context.Context, p harness.Product, version string) error {
	if !exact.MatchString(version) {
		return fmt.Errorf("remove %s: %q is not a version", p.Name, version)
	}
	home := filepath.Join(f.Dir, p.Name)
	if _, err := os.Stat(filepath.Join(home, version)); err != nil {
		return fmt.Errorf("remove %s: %w", p.Name, err)
	}
	unlock, err := f.lock(ctx, p.Name, func(string) {})
	if err != nil {
		return fmt.Errorf("remove %s: %w", p.Name, err)
	}
	defer unlock()
	doomed := filepath.Join(home, unfinished+version)
	if err := os.Rename(filepath.Join(home, version), doomed); err != nil {
		return fmt.Errorf("remove %s: %w", p.Name, err)
	}
	return os.RemoveAll(doomed)
}

// lock keeps other installations of a product out, also those of other
// processes. It ends with the process.
func (f Folder) lock(ctx context.Context, name string, note func(string)) (unlock func(), err error) {
	home := filepath.Join(f.Dir, name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(home, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; told = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if !told {
			note("waiting for another installation of " + name)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// checkTime is how long a program may take to print its version.
const checkTime = 2 * time.Minute

// check runs the program of a kit and holds the version it prints against the
// wanted one.
func check(ctx context.Context, p harness.Product, version, dir, command string) error {
	printed, err := ask(ctx, p, dir, command)
	if err == nil && harness.ReadVersion(printed) != version {
		err = fmt.Errorf("%s says %q and not %s", strings.Join(p.Ask(command), " "), lastLine(printed), version)
	}
	return err
}

// ask runs the program of a kit with nothing of this machine but the usual
// folders of programs, and returns what it prints as its version.
func ask(ctx context.Context, p harness.Product, dir, command string) (string, error) {
	program := filepath.Join(dir, filepath.FromSlash(command))
	home, err := os.MkdirTemp("", "polar-kit-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(home) }()
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	words := p.Ask(program)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/local/bin:/usr/bin:/bin"}
	var errs strings.Builder
	cmd.Stderr = &errs
	inGroup(cmd)
	out, err := cmd.Output()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return "", cause
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(p.Ask(command), " "), err, lastLine(errs.String()))
	}
	if printed := string(out); harness.ReadVersion(printed) != "" {
		return printed, nil
	}
	return errs.String(), nil
}

// inGroup has a command killed with all that it started.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// size is that of all files below a folder.
func size(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
