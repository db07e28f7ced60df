package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"polar/harness"
	"polar/kit"
)

// defaultHarnessDir is where CLIs are installed unless another folder is named.
func defaultHarnessDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "polar", "harnesses")
}

func harnessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "harness",
		Short: "List and install the CLIs that harness presets run",
		Example: `  polar harness list
  polar harness install codex pi
  polar harness install --all`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; see polar harness --help", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(harnessListCommand(), harnessInstallCommand(), harnessRunCommand(), harnessRemoveCommand())
	return cmd
}

// kitFlag adds the flag that says where CLIs are installed.
func kitFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "harness-dir", defaultHarnessDir(), "where CLIs are installed")
}

// openKits is the folder of kits at a path that a user typed.
func openKits(dir string) (kit.Folder, error) {
	abs, err := filepath.Abs(dir)
	return kit.Folder{Dir: abs}, err
}

// release is a product in one version; an empty one is the pinned version.
type release struct {
	product harness.Product
	version string
}

// parseReleases reads NAME[@VERSION] as typed. Harnesses that are built in have
// nothing to install and are left out, with a note.
func parseReleases(args []string, all bool, notes io.Writer) ([]release, error) {
	kinds := builtin("", nil)
	switch {
	case all && len(args) > 0:
		return nil, usagef("--all takes no names")
	case !all && len(args) == 0:
		return nil, usagef("name a harness or give --all; known: %s", strings.Join(kinds.harnesses.Kinds(), ", "))
	}
	var found []release
	for _, c := range kinds.clis {
		if all {
			found = append(found, release{product: c.Product})
		}
	}
	for _, arg := range args {
		name, version, exact := strings.Cut(arg, "@")
		if exact && version == "" {
			return nil, usagef("%s has no version after the @", arg)
		}
		i := slices.IndexFunc(kinds.clis, func(c harness.CLI) bool { return c.Name == name })
		switch {
		case i >= 0:
			found = append(found, release{kinds.clis[i].Product, version})
		case slices.Contains(kinds.harnesses.Kinds(), name):
			fmt.Fprintf(notes, "%s is built in\n", name)
		default:
			return nil, usagef("harness %q is not known; known: %s", name, strings.Join(kinds.harnesses.Kinds(), ", "))
		}
	}
	return found, nil
}

func harnessInstallCommand() *cobra.Command {
	var (
		dir        string
		all, force bool
	)
	cmd := &cobra.Command{
		Use:   "install NAME[@VERSION]…",
		Short: "Install CLIs with all they need into a folder of polar's",
		Long: `Install CLIs, each with the runtime it needs, into a folder that sandboxes use
read-only. Without a version the pinned one is installed, every package of it
checked against a hash that comes with polar; what is there already is left as
it is. npm must be on the PATH for those that come from npm. No script of a
package is run. It exits 0 only if all of them are there.`,
		Example: `  polar harness install codex pi
  polar harness install codex@0.170.0
  polar harness install --all --harness-dir /srv/harnesses`,
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseReleases(args, all, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			kits, err := openKits(dir)
			if err != nil {
				return err
			}
			return installAll(cmd, kits, wanted, force)
		},
	}
	kitFlag(cmd, &dir)
	cmd.Flags().BoolVar(&all, "all", false, "install every CLI there is a preset for")
	cmd.Flags().BoolVar(&force, "force", false, "install again what is there")
	return cmd
}

// installAll installs one after the other. One that cannot be installed does
// not keep the others out.
func installAll(cmd *cobra.Command, kits kit.Folder, wanted []release, force bool) error {
	var failures []error
	for _, r := range wanted {
		if err := installOne(cmd.Context(), kits, r, force, cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
			failures = append(failures, err)
			if cmd.Context().Err() != nil {
				break
			}
		}
	}
	if len(failures) < 2 {
		return errors.Join(failures...)
	}
	for _, err := range failures {
		fmt.Fprintln(cmd.ErrOrStderr(), "polar:", err)
	}
	return errQuiet
}

func installOne(ctx context.Context, kits kit.Folder, r release, force bool, out, notes io.Writer) error {
	if found, err := kits.Find(r.product, r.version); err == nil && !force {
		fmt.Fprintf(out, "%s %s is installed: %s\n", r.product.Name, found.Version, found.Dir)
		return nil
	}
	install := kits.Install
	if force {
		install = kits.Reinstall
	}
	start := time.Now()
	made, err := install(ctx, r.product, r.version, func(line string) { fmt.Fprintln(notes, line) })
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s installed in %.1f s: %s\n", r.product.Name, made.Version, time.Since(start).Seconds(), made.Dir)
	if warning := r.product.Warning(made.Version); warning != "" {
		fmt.Fprintln(notes, "warning:", warning)
	}
	return nil
}

func harnessRemoveCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "remove NAME[@VERSION]…",
		Short: "Remove CLIs; without a version, all versions of them",
		Example: `  polar harness remove codex@0.170.0
  polar harness remove opencode`,
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseReleases(args, false, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			kits, err := openKits(dir)
			if err != nil {
				return err
			}
			for _, r := range wanted {
				if err := removeOne(cmd.Context(), kits, r, cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	kitFlag(cmd, &dir)
	return cmd
}

func removeOne(ctx context.Context, kits kit.Folder, r release, out io.Writer) error {
	installed, err := kits.List(r.product)
	if err != nil {
		return err
	}
	removed := 0
	for _, one := range installed {
		if r.version != "" && one.Version != r.version {
			continue
		}
		if err := kits.Remove(ctx, r.product, one.Version); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s %s removed\n", r.product.Name, one.Version)
		removed++
	}
	if removed == 0 {
		return fmt.Errorf("%s is not installed in %s", strings.TrimSuffix(r.product.Name+" "+r.version, " "), kits.Dir)
	}
	return nil
}
