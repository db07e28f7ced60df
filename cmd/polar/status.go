package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"polar"
	"polar/api"
)

func statusCommand() *cobra.Command {
	var (
		server remote
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "status [TASK]",
		Short: "Show the health of server and nodes, or where a task stands",
		Example: `  polar status
  polar status hello`,
		Args: arguments(0, 1, "at most one task id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := server.client()
			if len(args) == 1 {
				return taskStatus(cmd, client, polar.TaskID(args[0]), asJSON)
			}
			status, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(status)
			}
			p := newPainter(cmd.OutOrStdout())
			p.printf("sessions: %d pending, %d running, %d ended\n", status.Pipeline.Pending, status.Pipeline.Running, status.Pipeline.Ended)
			var rows [][]string
			for _, n := range status.Nodes {
				state := "ok"
				switch {
				case n.Draining:
					state = "draining"
				case !n.Healthy:
					state = "silent"
				}
				m := n.Metrics
				rows = append(rows, []string{
					n.Node, state, n.GatewayURL,
					fmt.Sprintf("%d/%d", m.Init, n.MaxInit), fmt.Sprint(m.Ready),
					fmt.Sprintf("%d/%d", m.Run, n.MaxRun), fmt.Sprintf("%d/%d", m.Postrun, n.MaxPostrun),
				})
			}
			p.table([]string{"NODE", "STATE", "GATEWAY", "INIT", "READY", "RUN", "POSTRUN"}, rows)
			return nil
		},
	}
	server.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func taskStatus(cmd *cobra.Command, client *api.Client, id polar.TaskID, asJSON bool) error {
	status, err := client.Task(cmd.Context(), id, "none")
	if err != nil {
		return err
	}
	sessions, err := client.Sessions(cmd.Context(), id)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"task": status, "sessions": sessions})
	}
	p := newPainter(cmd.OutOrStdout())
	p.printf("%s is %s: %d of %d sessions done\n", status.Task, status.Status, status.Completed, status.Total)
	var rows [][]string
	for _, s := range sessions {
		r := "–"
		if s.Outcome != nil {
			r = reward(s.Outcome.Reward)
		}
		rows = append(rows, []string{string(s.ID), string(s.Status), fmt.Sprint(s.Attempt), r, s.Node})
	}
	p.table([]string{"SESSION", "STATUS", "ATTEMPT", "REWARD", "NODE"}, rows)
	return nil
}

func cancelCommand() *cobra.Command {
	var (
		server remote
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "cancel TASK…",
		Short:   "Cancel tasks: what waits ends at once, what runs is stopped",
		Example: "  polar cancel hello",
		Args:    arguments(1, -1, "one or more task ids"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := server.client()
			for _, id := range args {
				status, err := client.Cancel(cmd.Context(), polar.TaskID(id), false)
				if err != nil {
					return err
				}
				if asJSON {
					if err := json.NewEncoder(cmd.OutOrStdout()).Encode(status); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is %s: %d of %d sessions ended\n", status.Task, status.Status, status.Completed, status.Total)
			}
			return nil
		},
	}
	server.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
