package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"polar"
)

// buildStats is what became of the calls of a session, or of several.
type buildStats struct {
	Calls       int                       `json:"completions_total"`
	Merged      int                       `json:"completions_merged"`
	Traces      int                       `json:"chains_total"`
	Sampled     int                       `json:"sampled_tokens"`
	Delivered   int                       `json:"delivered_tokens"`
	Abandoned   int                       `json:"abandoned_tokens"`
	Untrainable int                       `json:"untrainable_tokens"`
	DriftTurns  int                       `json:"drift_turns"`
	DriftTokens int                       `json:"drift_tokens"`
	Splits      map[polar.SplitReason]int `json:"splits"`
}

func (b *buildStats) add(o buildStats) {
	b.Calls += o.Calls
	b.Merged += o.Merged
	b.Traces += o.Traces
	b.Sampled += o.Sampled
	b.Delivered += o.Delivered
	b.Abandoned += o.Abandoned
	b.Untrainable += o.Untrainable
	b.DriftTurns += o.DriftTurns
	b.DriftTokens += o.DriftTokens
	for reason, n := range o.Splits {
		if b.Splits == nil {
			b.Splits = map[polar.SplitReason]int{}
		}
		b.Splits[reason] += n
	}
}

// sessionStats is a session with its statistics and what is left to train on.
type sessionStats struct {
	Session polar.SessionID `json:"session_id"`
	Status  polar.Status    `json:"status"`
	Trained int             `json:"trained_tokens"`
	Stats   buildStats      `json:"reconstruction_stats"`
}

func readStats(r *polar.Result) (sessionStats, error) {
	s := sessionStats{Session: r.Session, Status: r.Status, Trained: r.Summary().Trainable}
	raw := r.Trajectory.Metadata["reconstruction_stats"]
	if raw == nil {
		return s, nil // it ended before there was anything to build
	}
	if err := json.Unmarshal(raw, &s.Stats); err != nil {
		return s, fmt.Errorf("read statistics of session %s: %w", r.Session, err)
	}
	return s, nil
}

// showStats prints the statistics of a session, or of all of a task's that have
// ended.
func showStats(cmd *cobra.Command, from *archive, id string, asJSON bool) error {
	ids, err := from.sessions(cmd.Context(), id)
	if err != nil {
		return err
	}
	var all []sessionStats
	for _, id := range ids {
		r, err := from.result(cmd.Context(), id)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		one, err := readStats(r)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return fmt.Errorf("no session of %s has a result yet", id)
	}
	total := sessionStats{Session: "total"}
	for _, s := range all {
		total.Trained += s.Trained
		total.Stats.add(s.Stats)
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"sessions": all, "total": total.Stats})
	}
	if len(all) > 1 {
		all = append(all, total)
	}
	newPainter(cmd.OutOrStdout()).table(statsRows(all))
	return nil
}

func statsRows(all []sessionStats) (head []string, rows [][]string) {
	head = []string{"SESSION", "CALLS → TRACES", "MERGED", "SAMPLED", "DELIVERED", "TRAINED", "DRIFT", "SPLITS"}
	for _, s := range all {
		b := s.Stats
		drift := "–"
		if b.DriftTurns > 0 {
			drift = fmt.Sprintf("%d in %s", b.DriftTokens, plural(b.DriftTurns, "turn"))
		}
		var splits []string
		for _, reason := range slices.Sorted(maps.Keys(b.Splits)) {
			splits = append(splits, fmt.Sprintf("%s %d", reason, b.Splits[reason]))
		}
		rows = append(rows, []string{
			string(s.Session), fmt.Sprintf("%d → %d", b.Calls, b.Traces), share(b.Merged, b.Calls), fmt.Sprint(b.Sampled),
			share(b.Delivered, b.Sampled), fmt.Sprint(s.Trained), drift, strings.Join(splits, ", "),
		})
	}
	return head, rows
}

func share(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}
