// Command polar turns any agent harness into a place where a language model
// can be trained: it runs harnesses in sandboxes, records every token of their
// model calls and hands trainers token-faithful traces with a reward.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

// The exit codes of every command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !errors.Is(err, errQuiet) {
		fmt.Fprintln(os.Stderr, "polar:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// usageError is bad usage or configuration: exit code 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// errQuiet fails a command that has already said why.
var errQuiet = errors.New("failed")

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "polar",
		Short:         "Train language models inside the agent harness they ship in",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; see polar --help", args[0])
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		serveCommand(), submitCommand(), statusCommand(), cancelCommand(), showCommand(), exportCommand(), verifyCommand(),
		simCommand(), demoCommand(), harnessCommand(), doctorCommand(), agentCommand(), versionCommand(),
	)
	return root
}

// arguments checks how many positional arguments a command got.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usagef("%s takes %s; see %s --help", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}
