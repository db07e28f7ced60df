package kit

import (
	"context"
	"errors"

	"polar/harness"
)

// installPython fills dir with a package from PyPI and a command that runs it,
// and checks that it does.
func (f Folder) installPython(_ context.Context, _ harness.Product, _, _ string, _ func(string)) (manifest, error) {
	return manifest{}, errors.New("packages of PyPI cannot be installed")
}
