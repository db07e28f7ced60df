package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"polar/harness"
	"polar/kit"
)

// The harness that the demo runs if it can be had, and the one it runs then.
const (
	demoCLI     = "pi"
	demoBuiltin = "mini"
)

// chooseHarness decides which harness the demo runs, installs it if need be and
// says in words what runs and why.
func (o *demoOptions) chooseHarness(ctx context.Context, notes io.Writer) (string, error) {
	kinds := builtin("", nil)
	name := o.harness
	if name == "" {
		name = demoCLI
	}
	i := slices.IndexFunc(kinds.clis, func(c harness.CLI) bool { return c.Name == name })
	switch {
	case name == demoBuiltin:
		return "mini, the built-in agent", nil
	case name == "shell":
		return "", usagef("--harness shell has no command of its own; the demo runs a harness that solves tasks")
	case i < 0:
		return "", usagef("--harness %q is not known; known: %s", name, strings.Join(kinds.harnesses.Kinds(), ", "))
	}
	installed, err := kit.Folder{Dir: o.harnessDir}.Install(ctx, kinds.clis[i].Product, "", func(line string) { fmt.Fprintln(notes, line) })
	switch {
	case err == nil:
		o.harness = name
		return fmt.Sprintf("%s %s, the real CLI", name, installed.Version), nil
	case o.harness != "" || ctx.Err() != nil:
		return "", err
	}
	o.harness = demoBuiltin
	return fmt.Sprintf("mini, the built-in agent (pi is not to be had: %s)", oneLine(err.Error(), 200)), nil
}
