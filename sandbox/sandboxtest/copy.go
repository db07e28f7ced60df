package sandboxtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"polar/sandbox"
)

type entry struct {
	Name, Body, Link string
	Type             byte
	Mode             int64
}

func pack(tb testing.TB, entries []entry) *bytes.Buffer {
	tb.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		head := &tar.Header{Name: e.Name, Typeflag: e.Type, Linkname: e.Link, Mode: e.Mode, Size: int64(len(e.Body))}
		if err := tw.WriteHeader(head); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(tw, e.Body); err != nil {
			tb.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		tb.Fatal(err)
	}
	return &buf
}

func unpack(tb testing.TB, r io.Reader) []entry {
	tb.Helper()
	var all []entry
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, entry{path.Clean(head.Name), string(body), head.Linkname, head.Typeflag, head.Mode & 0o777})
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func roundTrip(b *bench) {
	sb := b.start()
	want := []entry{
		{Name: "a", Type: tar.TypeDir, Mode: 0o755},
		{Name: "a/empty", Type: tar.TypeReg, Mode: 0o644},
		{Name: "a/run.sh", Type: tar.TypeReg, Mode: 0o755, Body: "#!/bin/sh\necho hi\n"},
		{Name: "a/to", Type: tar.TypeSymlink, Link: "run.sh", Mode: 0o777},
		{Name: "big", Type: tar.TypeReg, Mode: 0o600, Body: strings.Repeat("0123456789", 100_000)},
	}
	for _, dir := range []string{"in", sb.Paths().Session + "/artifacts/in"} {
		if err := sb.Upload(b.Context(), dir, pack(b, want)); err != nil {
			b.Fatal(err)
		}
		var out bytes.Buffer
		if err := sb.Download(b.Context(), dir, &out); err != nil {
			b.Fatal(err)
		}
		got := unpack(b, &out)
		if !slices.Equal(got, want) {
			b.Errorf("%s came back as %.300q", dir, fmt.Sprint(got))
		}
	}
	if got := b.bash(sb, "cd in/a && ./run.sh"); got != "hi" {
		b.Errorf("the script said %q", got)
	}
}

func singleFile(b *bench) {
	sb := b.start()
	if err := sandbox.WriteFile(b.Context(), sb, "x/y.txt", 0o640, 5, strings.NewReader("hello")); err != nil {
		b.Fatal(err)
	}
	if err := sandbox.WriteFile(b.Context(), sb, "x/y.txt", 0o640, 3, strings.NewReader("two")); err != nil {
		b.Fatal(err)
	}
	got, err := sandbox.ReadFile(b.Context(), sb, "x/y.txt", 100)
	if err != nil || string(got) != "two" {
		b.Errorf("read %q, error %v", got, err)
	}
	if _, err := sandbox.ReadFile(b.Context(), sb, "x/y.txt", 2); err == nil {
		b.Error("a file over the limit was read")
	}
	b.bash(sb, "ln -s y.txt x/link")
	if _, err := sandbox.ReadFile(b.Context(), sb, "x/link", 100); err == nil {
		b.Error("a link was followed")
	}
}

func hostileTar(b *bench) {
	for name, entries := range map[string][]entry{
		"parent":       {{Name: "../escaped", Type: tar.TypeReg, Body: "x", Mode: 0o644}},
		"deep parent":  {{Name: "a/../../escaped", Type: tar.TypeReg, Body: "x", Mode: 0o644}},
		"absolute":     {{Name: b.TempDir() + "/escaped", Type: tar.TypeReg, Body: "x", Mode: 0o644}},
		"through link": {{Name: "l", Type: tar.TypeSymlink, Link: "../"}, {Name: "l/escaped", Type: tar.TypeReg, Body: "x", Mode: 0o644}},
		"hard link":    {{Name: "h", Type: tar.TypeLink, Link: "../secret"}},
		"device":       {{Name: "null", Type: tar.TypeChar, Mode: 0o666}},
	} {
		b.Run(name, func(t *testing.T) {
			own := &bench{T: t, driver: b.driver, spec: b.spec}
			own.spec.ID += "-" + strings.ReplaceAll(name, " ", "-")
			sb := own.start()
			own.bash(sb, "echo private >secret")
			if err := sb.Upload(t.Context(), "in", pack(t, entries)); err == nil {
				t.Error("it was taken")
			}
			if got := own.bash(sb, "ls -R ."); strings.Contains(got, "escaped") {
				t.Errorf("a file escaped:\n%s", got)
			}
			own.bash(sb, "test ! -e in/h")
		})
	}
}

func plantedLink(b *bench) {
	sb := b.start()
	b.bash(sb, "mkdir in && ln -s /tmp in/dir && echo mine >victim && ln -s ../victim in/file")
	err := sb.Upload(b.Context(), "in", pack(b, []entry{{Name: "dir/polar-escaped", Type: tar.TypeReg, Body: "x", Mode: 0o644}}))
	if err == nil {
		b.Error("it was written through a link to a folder")
	}
	if err := sb.Upload(b.Context(), "in", pack(b, []entry{{Name: "file", Type: tar.TypeReg, Body: "x", Mode: 0o644}})); err != nil {
		b.Error(err)
	}
	if got := b.bash(sb, "cat victim; test ! -e /tmp/polar-escaped"); got != "mine" {
		b.Errorf("it was written through a link to a file: %q", got)
	}
}

func missingDownload(b *bench) {
	sb := b.start()
	if err := sb.Download(b.Context(), "nowhere/at/all", io.Discard); !errors.Is(err, fs.ErrNotExist) {
		b.Errorf("error %v, want fs.ErrNotExist", err)
	}
}
