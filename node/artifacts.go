package node

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"polar"
	"polar/sandbox"
)

type metadata = map[string]json.RawMessage

// leftOut says which artifacts were not kept.
type leftOut struct {
	Count int      `json:"count"`
	Paths []string `json:"paths"`
}

// namedLeftOut is how many of them are named.
const namedLeftOut = 20

// keepArtifacts stores the files below the session's folder, within bounds.
// What cannot be kept is named in the result and does not fail the session.
func (l *life) keepArtifacts(ctx context.Context) error {
	k := keeping{life: l, bytes: l.node.cfg.MaxArtifactBytes}
	var errs []error
	for _, from := range []struct {
		sandbox sandbox.Sandbox
		prefix  string
	}{{l.sandbox, ""}, {l.fresh, "evaluation"}} {
		if from.sandbox == nil {
			continue
		}
		errs = append(errs, sandbox.Pipe(
			func(w io.Writer) error { return from.sandbox.Download(ctx, from.sandbox.Paths().Session, w) },
			func(r io.Reader) error { return k.all(ctx, from.prefix, tar.NewReader(r)) },
		))
	}
	if k.out.Count > 0 {
		l.note("artifacts_left_out", k.out)
	}
	if err := errors.Join(errs...); err != nil {
		l.s.log.Warn("keep artifacts", "error", err)
		l.note("artifacts_error", err.Error())
	}
	return nil
}

func (l *life) note(key string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		return
	}
	if l.result.Metadata == nil {
		l.result.Metadata = metadata{}
	}
	l.result.Metadata[key] = raw
}

type keeping struct {
	life  *life
	bytes int64
	out   leftOut
}

func (k *keeping) all(ctx context.Context, prefix string, tr *tar.Reader) error {
	for {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		name := path.Join(prefix, path.Clean("/" + head.Name)[1:])
		kept := &k.life.result.Artifacts
		if head.Size > k.bytes || len(*kept) >= k.life.node.cfg.MaxArtifacts {
			k.out.Count++
			if len(k.out.Paths) < namedLeftOut {
				k.out.Paths = append(k.out.Paths, name)
			}
			continue
		}
		ref, size, err := k.life.node.cfg.Blobs.Put(ctx, tr)
		if err != nil {
			return fmt.Errorf("keep %s: %w", name, err)
		}
		k.bytes -= size
		*kept = append(*kept, polar.Artifact{Path: name, Size: size, Blob: ref})
	}
}

// copyFolder copies a folder from one sandbox to another.
func copyFolder(ctx context.Context, from sandbox.Sandbox, source string, to sandbox.Sandbox, target string) error {
	return sandbox.Pipe(
		func(w io.Writer) error { return from.Download(ctx, source, w) },
		func(r io.Reader) error { return to.Upload(ctx, target, r) },
	)
}
