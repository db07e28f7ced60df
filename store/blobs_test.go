package store_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"polar/api"
	"polar/store"
)

func TestBlobs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	b, err := store.OpenBlobs(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("token ", 100_000)
	sum := sha256.Sum256([]byte(text))
	want := hex.EncodeToString(sum[:])
	var wg sync.WaitGroup
	for range 8 { // the same content at the same time is one blob
		wg.Go(func() {
			hash, size, err := b.Put(t.Context(), iotest.HalfReader(strings.NewReader(text)))
			if err != nil || hash != want || size != int64(len(text)) {
				t.Errorf("put %s of %d, %v", hash, size, err)
			}
		})
	}
	wg.Wait()
	if data, err := b.Get(want); err != nil || string(data) != text {
		t.Errorf("got %d bytes, %v", len(data), err)
	}
	if size, err := b.Size(want); err != nil || size != int64(len(text)) || !b.Has(want) {
		t.Errorf("size %d, %v", size, err)
	}
	f, err := b.Open(want)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(-6, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if tail, _ := io.ReadAll(f); string(tail) != "token " {
		t.Errorf("tail %q", tail)
	}
	if _, _, err := b.Put(t.Context(), iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that breaks: %v", err)
	}
	for _, hash := range []string{"", "..", "../../../etc/passwd", strings.Repeat("0", 64), strings.Repeat("/", 64)} {
		if _, err := b.Get(hash); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("blob %q: %v", hash, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBlobsThatACrashLeftUnfinishedAreClearedInTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := store.OpenBlobs(dir); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"put-old": 48 * time.Hour, "put-new": time.Minute} {
		path := filepath.Join(dir, "tmp", name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.OpenBlobs(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != "put-new" {
		t.Errorf("left %v, %v", left, err)
	}
}
