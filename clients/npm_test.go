package clients_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// oldestNode is the first major version of Node that all the clients run on.
const oldestNode = 22

// findNode is a Node that is new enough: the one on the PATH, else one from npm.
func findNode(ctx context.Context) (string, error) {
	if node, err := exec.LookPath("node"); err == nil {
		out, err := exec.CommandContext(ctx, node, "--version").Output()
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, bad := strconv.Atoi(major); err == nil && bad == nil && n >= oldestNode {
			return node, nil
		}
	}
	dir, err := npmInstall(ctx, filepath.Join("node", "runtime"))
	if err != nil {
		return "", err
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	node := filepath.Join(dir, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(node); err != nil {
		return "", fmt.Errorf("find Node %d or newer, of which there is none on the PATH: %w", oldestNode, err)
	}
	return node, nil
}

// npmInstall installs what a folder's lock file says into the user's cache, and
// returns the folder there. What is there already is used as it is.
func npmInstall(ctx context.Context, from string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	files := map[string][]byte{}
	hash := sha256.New()
	for _, name := range []string{".npmrc", "package.json", "package-lock.json"} {
		if files[name], err = os.ReadFile(filepath.Join(from, name)); err != nil {
			return "", err
		}
		hash.Write(files[name])
	}
	to := filepath.Join(cache, "polar", "clients-"+filepath.Base(from)+"-"+hex.EncodeToString(hash.Sum(nil))[:12])
	if _, err := os.Stat(to); err == nil {
		return to, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(to), "installing-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(work, name), data, 0o600); err != nil {
			return "", err
		}
	}
	if err := npmCI(ctx, work); err != nil {
		return "", err
	}
	if err := os.Rename(work, to); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Stat(to); there != nil { // another run was not quicker either
			return "", err
		}
	}
	return to, nil
}

// npmCI installs a lock file, and tries again where a registry had a bad moment.
func npmCI(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, 3*time.Minute)
		cmd := exec.CommandContext(once, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil {
			return nil
		}
		if try == 3 {
			return fmt.Errorf("npm ci: %w\n%s", err, out)
		}
	}
}
