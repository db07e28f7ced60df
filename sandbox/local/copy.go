package local

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// Upload unpacks a tar stream. No entry can land outside dir, whatever links
// there are in the stream or the sandbox.
func (s *place) Upload(ctx context.Context, dir string, stream io.Reader) error {
	root, err := s.openRoot(dir, true)
	if err != nil {
		return fmt.Errorf("upload to %s: %w", dir, err)
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	u := unpacking{root: root, bytes: s.driver.maxBytes, files: s.driver.maxFiles}
	tr := tar.NewReader(ctxReader{ctx, stream})
	for {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("upload to %s: %w", dir, err)
		}
		if err := u.entry(head, tr); err != nil {
			return fmt.Errorf("upload to %s: %s: %w", dir, head.Name, err)
		}
	}
}

// openRoot opens the folder at name, which must lie in the sandbox or its work
// folder. Links that lead out of these are not followed.
func (s *place) openRoot(name string, create bool) (*os.Root, error) {
	top, rel, err := s.locate(name)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(top)
	if err != nil || rel == "." {
		return root, err
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	if create {
		if err := root.MkdirAll(rel, 0o755); err != nil {
			return nil, err
		}
	}
	return root.OpenRoot(rel)
}

// locate splits a path into the folder it must not leave and the rest.
func (s *place) locate(name string) (top, rel string, err error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(s.paths.Work, name)
	}
	name = filepath.Clean(name)
	for _, top := range []string{s.base, s.paths.Work} {
		if within(top, name) {
			rel, err := filepath.Rel(top, name)
			return top, rel, err
		}
	}
	return "", "", fmt.Errorf("%s is outside the sandbox", name)
}

// unpacking writes the entries of one stream below root, within its bounds.
type unpacking struct {
	root  *os.Root
	bytes int64
	files int
}

func (u *unpacking) entry(head *tar.Header, content io.Reader) error {
	name := path.Clean(head.Name)
	if !filepath.IsLocal(name) {
		return errors.New("leaves the folder it is unpacked in")
	}
	if u.files--; u.files < 0 {
		return errors.New("too many entries")
	}
	if u.bytes -= head.Size; u.bytes < 0 {
		return errors.New("too many bytes")
	}
	if name == "." {
		return nil
	}
	mode := fs.FileMode(head.Mode).Perm()
	if head.Typeflag == tar.TypeDir {
		return u.folder(name, mode)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	switch head.Typeflag {
	case tar.TypeReg:
		return u.file(name, mode, content)
	case tar.TypeSymlink:
		return u.root.Symlink(head.Linkname, name)
	case tar.TypeLink:
		return u.root.Link(path.Clean(head.Linkname), name)
	}
	return fmt.Errorf("entries of type %q are not unpacked", head.Typeflag)
}

func (u *unpacking) folder(name string, mode fs.FileMode) error {
	mode |= 0o700 // what follows must fit in
	if err := u.root.MkdirAll(name, mode); err != nil {
		return err
	}
	return u.root.Chmod(name, mode)
}

// clear makes way for name. What stands there goes, rather than being written
// through if it is a link.
func (u *unpacking) clear(name string) error {
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errors.New("a folder stands there")
	}
	return u.root.Remove(name)
}

func (u *unpacking) file(name string, mode fs.FileMode, content io.Reader) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// Download packs a file, as one entry with its own name, or what is in a
// folder. Links are packed as links; sockets and the like are left out.
func (s *place) Download(ctx context.Context, name string, stream io.Writer) error {
	err := s.pack(ctx, name, stream)
	if err != nil {
		return fmt.Errorf("download %s: %w", name, err)
	}
	return nil
}

func (s *place) pack(ctx context.Context, name string, stream io.Writer) error {
	top, rel, err := s.locate(name)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	info, err := root.Lstat(rel)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(stream)
	if info.IsDir() {
		folder, err := root.OpenRoot(rel)
		if err != nil {
			return err
		}
		defer folder.Close() //nolint:errcheck // nothing was written through it
		err = fs.WalkDir(folder.FS(), ".", func(p string, e fs.DirEntry, err error) error {
			if err != nil || p == "." {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) { // gone since the folder was read
				return nil
			}
			if err != nil {
				return err
			}
			return packEntry(ctx, tw, folder, p, p, info)
		})
		if err != nil {
			return err
		}
	} else if err := packEntry(ctx, tw, root, rel, path.Base(rel), info); err != nil {
		return err
	}
	return tw.Close()
}

// packEntry writes one entry. A file keeps the size it had when it was opened,
// even if it is still being written.
func packEntry(ctx context.Context, tw *tar.Writer, root *os.Root, name, as string, info fs.FileInfo) error {
	head := &tar.Header{Name: as, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	switch {
	case info.IsDir():
		head.Typeflag, head.Name = tar.TypeDir, as+"/"
		return tw.WriteHeader(head)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		head.Typeflag, head.Linkname = tar.TypeSymlink, target
		return tw.WriteHeader(head)
	case !info.Mode().IsRegular():
		return nil
	}
	// Without O_NONBLOCK, a pipe put in the file's place would block for ever.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err = f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	head.Typeflag, head.Size = tar.TypeReg, info.Size()
	if err := tw.WriteHeader(head); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(ctxReader{ctx, f}, head.Size))
	if err != nil {
		return err
	}
	_, err = io.CopyN(tw, zeros{}, head.Size-n)
	return err
}

// zeros fills up a file that shrank while it was packed.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// ctxReader stops reading when the context ends.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // it lives as long as one copy
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
