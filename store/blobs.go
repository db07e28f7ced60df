package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"polar/api"
)

// Blobs keeps large things in a folder, each under the SHA-256 of its content.
// What Put has returned survives a loss of power.
type Blobs struct{ dir string }

// staleAfter is how old an unfinished blob must be to be thought abandoned: the
// process that wrote it may be another than this one.
const staleAfter = 24 * time.Hour

// OpenBlobs opens the folder, making it if need be, and clears away what a
// crash left unfinished.
func OpenBlobs(dir string) (*Blobs, error) {
	b := &Blobs{dir: dir}
	if err := os.MkdirAll(b.tmp(), 0o700); err != nil {
		return nil, fmt.Errorf("make blob folder: %w", b.explain(err))
	}
	// The folders of the first byte are made here and not by the first Put that
	// needs one, since a second Put could not know whether that was durable yet.
	for i := range 256 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%02x", i)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make blob folder: %w", b.explain(err))
		}
	}
	if err := syncDir(dir); err != nil {
		return nil, fmt.Errorf("make blob folder: %w", b.explain(err))
	}
	entries, err := os.ReadDir(b.tmp())
	if err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > staleAfter {
			_ = os.Remove(filepath.Join(b.tmp(), e.Name()))
		}
	}
	return b, nil
}

// BlobsIn reads the blobs in a folder that another process may be writing. It
// makes and clears away nothing.
func BlobsIn(dir string) *Blobs { return &Blobs{dir: dir} }

// Put stores all of r and returns its content address and size.
func (b *Blobs) Put(ctx context.Context, r io.Reader) (hash string, size int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("store blob: %w", b.explain(err))
		}
	}()
	f, err := os.CreateTemp(b.tmp(), "put-")
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	sum := sha256.New()
	if size, err = io.Copy(io.MultiWriter(f, sum), whileWanted{r, ctx.Err}); err != nil {
		return "", 0, err
	}
	if err = f.Sync(); err != nil {
		return "", 0, err
	}
	if err = f.Close(); err != nil {
		return "", 0, err
	}
	hash = hex.EncodeToString(sum.Sum(nil))
	path, err := b.path(hash)
	if err != nil {
		return "", 0, err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return "", 0, err
	}
	return hash, size, syncDir(filepath.Dir(path))
}

// Open reads a blob.
func (b *Blobs) Open(hash string) (io.ReadSeekCloser, error) {
	path, err := b.path(hash)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", hash, api.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return f, nil
}

// Get reads a whole blob.
func (b *Blobs) Get(hash string) ([]byte, error) {
	f, err := b.Open(hash)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}

// Size is how many bytes a blob has; api.ErrNotFound is wrapped if it is not there.
func (b *Blobs) Size(hash string) (int64, error) {
	path, err := b.path(hash)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("blob %s: %w", hash, api.ErrNotFound)
	}
	if err != nil {
		return 0, fmt.Errorf("stat blob: %w", err)
	}
	return info.Size(), nil
}

// Has reports whether the blob is there.
func (b *Blobs) Has(hash string) bool {
	_, err := b.Size(hash)
	return err == nil
}

// Dir is the folder that holds the blobs.
func (b *Blobs) Dir() string { return b.dir }

func (b *Blobs) tmp() string { return filepath.Join(b.dir, "tmp") }

func (b *Blobs) path(hash string) (string, error) {
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("blob %q: not a content address: %w", hash, api.ErrNotFound)
	}
	return filepath.Join(b.dir, hash[:2], hash[2:]), nil
}

func (b *Blobs) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return noSpace(b.dir)
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

// whileWanted stops a copy when its asker leaves.
type whileWanted struct {
	r    io.Reader
	gone func() error
}

func (w whileWanted) Read(p []byte) (int, error) {
	if err := w.gone(); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}
