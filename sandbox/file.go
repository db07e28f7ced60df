package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
)

// WriteFile puts one file of known size into a sandbox, with its folders.
func WriteFile(ctx context.Context, sb Sandbox, name string, mode, size int64, content io.Reader) error {
	dir, base := path.Split(path.Clean(name))
	if base == "" || base == "." || base == ".." {
		return fmt.Errorf("write file %q: not the name of a file", name)
	}
	if dir == "" {
		dir = "."
	}
	err := Pipe(
		func(w io.Writer) error {
			tw := tar.NewWriter(w)
			if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: base, Mode: mode, Size: size}); err != nil {
				return err
			}
			if _, err := io.Copy(tw, content); err != nil {
				return err
			}
			return tw.Close()
		},
		func(r io.Reader) error { return sb.Upload(ctx, dir, r) },
	)
	if err != nil {
		return fmt.Errorf("write file %s: %w", name, err)
	}
	return nil
}

// ReadFile reads one regular file of at most limit bytes out of a sandbox. A
// link is not followed: whoever could place it does not choose what is read.
func ReadFile(ctx context.Context, sb Sandbox, name string, limit int64) ([]byte, error) {
	var content []byte
	err := Pipe(
		func(w io.Writer) error { return sb.Download(ctx, name, w) },
		func(r io.Reader) error {
			tr := tar.NewReader(r)
			head, err := tr.Next()
			switch {
			case errors.Is(err, io.EOF):
				return errors.New("is a folder")
			case err != nil:
				return err
			case head.Typeflag != tar.TypeReg || head.Name != path.Base(name):
				return errors.New("is not a regular file")
			case head.Size > limit:
				return fmt.Errorf("has %d bytes, at most %d are read", head.Size, limit)
			}
			if content, err = io.ReadAll(tr); err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, r)
			return err
		},
	)
	if err != nil {
		return nil, fmt.Errorf("read file %s: %w", name, err)
	}
	return content, nil
}

// Pipe joins a writer of a tar stream to its reader and returns when both have
// ended, with the error of the side that failed first.
func Pipe(write func(io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil { // in its own goroutine it would end the process
				err = fmt.Errorf("panic: %v", p)
			}
			_ = w.CloseWithError(err)
			written <- err
		}()
		err = write(w)
	}()
	readErr := read(r)
	_ = r.CloseWithError(errReaderEnded)
	if err := <-written; err != nil && !errors.Is(err, errReaderEnded) {
		return err
	}
	return readErr
}

var errReaderEnded = errors.New("the reader ended")
