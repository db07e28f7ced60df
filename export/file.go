package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"polar"
)

// ToFile exports to a file, which is there when all of it is. Until then it is
// path.part, and path.part.state says how far it is.
func ToFile(ctx context.Context, c Config, path string) (sum Summary, err error) {
	j, err := newJob(c)
	if err != nil {
		return Summary{}, err
	}
	p := part{path: path + ".part", resumable: c.Container != Parquet}
	if err := p.open(j); err != nil {
		return Summary{}, p.explain(err)
	}
	counted := &counter{w: p.file, n: j.state.Offset}
	if j.out, err = newContainer(c.Container, counted, j.form, c.PieceBytes); err != nil {
		return Summary{}, errors.Join(err, p.file.Close())
	}
	if p.resumable {
		j.save = func() error {
			j.state.Offset = counted.n
			return p.save(j.state)
		}
	}
	if err := j.run(ctx); err != nil {
		return Summary{}, p.abandon(err)
	}
	if err := errors.Join(p.file.Sync(), p.file.Close()); err != nil {
		return Summary{}, p.explain(err)
	}
	if err := os.Rename(p.path, path); err != nil {
		return Summary{}, p.explain(err)
	}
	if err := os.Remove(p.statePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Summary{}, p.explain(err)
	}
	return j.summary(path, counted.n), syncDir(filepath.Dir(path))
}

// part is a file on its way.
type part struct {
	path      string
	file      *os.File
	resumable bool
}

func (p *part) statePath() string { return p.path + ".state" }

// open opens the part where the export is to go on, or empties it.
func (p *part) open(j *job) error {
	if j.Resume && p.resumable {
		if err := p.resume(j); err != nil {
			return err
		}
	}
	if j.Resume && !p.resumable {
		j.Note("a Parquet file cannot be gone on with: starting over")
	}
	if j.state.Offset == 0 {
		if err := os.Remove(p.statePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var err error
	if p.file, err = os.OpenFile(p.path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	if err := p.file.Truncate(j.state.Offset); err != nil {
		return errors.Join(err, p.file.Close())
	}
	if _, err := p.file.Seek(j.state.Offset, io.SeekStart); err != nil {
		return errors.Join(err, p.file.Close())
	}
	return nil
}

// resume takes over the state that an earlier export left, if one did.
func (p *part) resume(j *job) error {
	raw, err := os.ReadFile(p.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		j.Note("there is nothing to go on with: starting from the first result")
		return nil
	}
	if err != nil {
		return err
	}
	var old state
	if err := polar.DecodeStrict(raw, &old); err != nil {
		return fmt.Errorf("%s: %w: remove it to start over", p.statePath(), err)
	}
	if old.Format != j.Format || old.Container != j.Container || old.Filter != j.filter {
		return polar.Invalid("resume", "%s is of another export (%s in %s with the filter %s); ask for the same, or leave out --resume to start over",
			p.path, old.Format, old.Container, old.Filter)
	}
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	if info.Size() < old.Offset {
		return fmt.Errorf("%s has %d bytes, its state says %d: remove both to start over", p.path, info.Size(), old.Offset)
	}
	j.state = old
	j.Note(fmt.Sprintf("going on after result %d of %d with %d rows", old.Last, old.Until, old.Rows))
	return nil
}

// save makes what is in the file durable, and then where it ends.
func (p *part) save(s state) error {
	if err := p.file.Sync(); err != nil {
		return err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	next := p.statePath() + ".new"
	if err := os.WriteFile(next, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, p.statePath())
}

// abandon closes a part that could not be ended and says what can be done.
func (p *part) abandon(err error) error {
	_ = p.file.Close() // what was cut is safe, the rest is written again
	_, lost := os.Stat(p.statePath())
	if lost != nil {
		_ = os.Remove(p.path)
		return p.explain(err)
	}
	return fmt.Errorf("%w; %s is kept: go on with --resume", p.explain(err), p.path)
}

// explain names a full disk.
func (p *part) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("write %s: no space left: make room: %w", p.path, err)
	}
	return err
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
