package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"polar/harness"
	"polar/kit"
)

// listed is a harness and what is installed of it.
type listed struct {
	Name    string `json:"name"`
	BuiltIn bool   `json:"built_in,omitempty"`
	Source  string `json:"source,omitempty"`
	Package string `json:"package,omitempty"`
	// Pinned is the version that is installed unless another is asked for;
	// Oldest and Newest bound those that were tried.
	Pinned    string          `json:"pinned,omitempty"`
	Oldest    string          `json:"oldest_tried,omitempty"`
	Newest    string          `json:"newest_tried,omitempty"`
	Wires     []string        `json:"wires,omitempty"`
	Installed []kit.Installed `json:"installed"`
}

func harnessListCommand() *cobra.Command {
	var (
		dir    string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the harnesses and what is installed of them",
		Example: `  polar harness list
  polar harness list --json`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			kits, err := openKits(dir)
			if err != nil {
				return err
			}
			all, err := listHarnesses(kits)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
			}
			newPainter(cmd.OutOrStdout()).harnesses(all)
			return nil
		},
	}
	kitFlag(cmd, &dir)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func listHarnesses(kits kit.Folder) ([]listed, error) {
	kinds := builtin("", nil)
	var all []listed
	for _, name := range kinds.harnesses.Kinds() {
		i := slices.IndexFunc(kinds.clis, func(c harness.CLI) bool { return c.Name == name })
		if i < 0 {
			all = append(all, listed{Name: name, BuiltIn: true, Installed: []kit.Installed{}})
			continue
		}
		p := kinds.clis[i].Product
		installed, err := kits.List(p)
		if err != nil {
			return nil, err
		}
		all = append(all, listed{
			Name: name, Source: p.Source, Package: p.Package, Pinned: p.Newest, Oldest: p.Oldest, Newest: p.Newest,
			Wires: p.Wires, Installed: append([]kit.Installed{}, installed...),
		})
	}
	return all, nil
}

func (p painter) harnesses(all []listed) {
	var rows [][]string
	var faults []string
	for _, h := range all {
		if h.BuiltIn {
			rows = append(rows, []string{h.Name, "built in"})
			continue
		}
		tried := h.Newest
		if h.Oldest != h.Newest {
			tried = h.Oldest + " to " + h.Newest
		}
		row := func(version, size, path string) {
			rows = append(rows, []string{h.Name, version, h.Pinned, tried, strings.Join(h.Wires, ","), size, path})
		}
		for _, one := range h.Installed {
			version := one.Version
			if one.Fault != "" {
				version += " (unusable)"
				faults = append(faults, fmt.Sprintf("%s %s %s; run polar harness install %s@%s", h.Name, one.Version, one.Fault, h.Name, one.Version))
			}
			row(version, fmt.Sprintf("%d MB", one.Bytes/1e6), one.Dir)
		}
		if len(h.Installed) == 0 {
			row("–", "", "")
		}
	}
	p.table([]string{"NAME", "VERSION", "PINNED", "TRIED", "WIRES", "SIZE", "PATH"}, rows)
	for _, f := range faults {
		p.printf("%s\n", f)
	}
}
