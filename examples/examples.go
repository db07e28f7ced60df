// Package examples holds tasks to start from; `polar demo` runs those in demo.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed demo/*.yaml
var demo embed.FS

// Demo returns the tasks of the demo by file name.
func Demo() (map[string][]byte, error) {
	out := map[string][]byte{}
	entries, err := fs.ReadDir(demo, "demo")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		data, err := fs.ReadFile(demo, "demo/"+e.Name())
		if err != nil {
			return nil, err
		}
		out["examples/demo/"+e.Name()] = data
	}
	return out, nil
}
