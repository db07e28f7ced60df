package main

import (
	"os"
	"path/filepath"
)

// defaultHarnessDir is where CLIs are installed unless another folder is named.
func defaultHarnessDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "polar", "harnesses")
}
