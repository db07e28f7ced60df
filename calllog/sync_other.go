//go:build !linux

package calllog

import "os"

// dataFile is a file; elsewhere than on Linux all of it is synced.
type dataFile struct{ *os.File }
