package clients_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	node := filepath.Join("node-"+runtime.GOOS+"-"+arch, "bin", "node")
	modules, err := npmInstall(ctx, filepath.Join("node", "runtime"), node)
	if err != nil {
		return "", fmt.Errorf("install Node, since there is none of version %d or newer on the PATH: %w", oldestNode, err)
	}
	return filepath.Join(modules, node), nil
}

// npmInstall installs what a folder's lock file says into the user's cache, and
// returns the folder of the modules there. What is there already is used as it
// is. wanted is a file among the modules: npm is content without those that are
// for some machines only.
func npmInstall(ctx context.Context, from, wanted string) (string, error) {
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
	modules := filepath.Join(to, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
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
	if err := npmCI(ctx, work, filepath.Join("node_modules", wanted)); err != nil {
		return "", err
	}
	if err := os.Rename(work, to); err != nil {
		if _, there := os.Stat(modules); there != nil { // another run was not quicker either
			return "", err
		}
	}
	return modules, nil
}

// npmCI installs a lock file until the file wanted is there, and tries again
// where a registry had a bad moment.
func npmCI(ctx context.Context, dir, wanted string) error {
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
			_, err = os.Stat(filepath.Join(dir, wanted))
		}
		if err == nil {
			return nil
		}
		if try == 3 {
			return fmt.Errorf("npm ci: %w\n%s", err, out)
		}
	}
}
