package trajectory_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polar"
	"polar/trajectory"
)

// TestRolesThatAreNotTrainedOnlyLoseTheirMask compares a trajectory with that
// of every role.
func TestRolesThatAreNotTrainedOnlyLoseTheirMask(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"per_request", "prefix_merging"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t)
				roles := rapid.SliceOfNDistinct(rapid.SampledFrom(polar.Roles()), 1, 4, rapid.ID).Draw(t, "roles")
				config := marshal(t, map[string]any{"train_roles": roles})
				record := w.record(w.calls)
				got := mustBuild(t, strategy, config, record)
				want := mustBuild(t, strategy, `{`+everyRole+`}`, record)
				trained, delivered := 0, 0
				for i := range want.Traces {
					trace := &want.Traces[i]
					delivered += trace.Trainable()
					if !slices.Contains(roles, trace.Role) {
						trace.LossMask = make(polar.Mask, len(trace.LossMask))
						trace.Metadata["training_filter"] = json.RawMessage(`{"masked":true,"trainable":false,"reason":"role","detail":"` + string(trace.Role) + `"}`)
					}
					trained += trace.Trainable()
				}
				if diff := cmp.Diff(marshal(t, want.Traces), marshal(t, got.Traces)); diff != "" {
					t.Fatal(diff)
				}
				var stats struct{ Sampled, Delivered, Abandoned, Trained int }
				fields := map[string]*int{
					"sampled_tokens": &stats.Sampled, "delivered_tokens": &stats.Delivered, "abandoned_tokens": &stats.Abandoned, "trained_tokens": &stats.Trained,
				}
				var all map[string]json.RawMessage
				if err := json.Unmarshal(got.Metadata["reconstruction_stats"], &all); err != nil {
					t.Fatal(err)
				}
				for name, into := range fields {
					if err := json.Unmarshal(all[name], into); err != nil {
						t.Fatal(name, err)
					}
				}
				if stats.Delivered != delivered || stats.Trained != trained || stats.Delivered+stats.Abandoned != stats.Sampled {
					t.Fatalf("%+v, want %d delivered and %d trained", stats, delivered, trained)
				}
			})
		})
	}
}

func mustBuild(t *rapid.T, strategy, config string, r trajectory.Record) polar.Trajectory {
	known := polar.Registry[trajectory.Builder]{
		"per_request":    polar.Opener(trajectory.PerRequest),
		"prefix_merging": polar.Opener(trajectory.PrefixMerging),
	}
	build, err := known.Open(polar.Spec{Kind: strategy, Config: json.RawMessage(config)})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := build(r)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestCreditForAnyCalls holds what every rule promises: who is trained on has a
// reward, what is left out says why, shares add up, and twice is once.
func TestCreditForAnyCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		rule := rapid.SampledFrom([]trajectory.Credit{"all", "main", "split", "last"}).Draw(t, "credit")
		tr := mustBuild(t, "prefix_merging", marshal(t, map[string]any{"credit": rule}), w.record(w.calls))
		trainable := 0
		for _, trace := range tr.Traces {
			if trace.Trainable() > 0 {
				trainable++
			}
		}
		reward := 3.0
		if err := trajectory.Reward(&tr, trajectory.Rewards{Session: &reward}); err != nil {
			t.Fatal(err)
		}
		sum, trained := 0.0, 0
		for _, trace := range tr.Traces {
			if trace.Trainable() == 0 {
				if len(trace.Metadata["training_filter"]) == 0 {
					t.Fatalf("%s is not trained on, and nothing says why", trace.ID)
				}
				continue
			}
			trained++
			if trace.Reward == nil {
				t.Fatalf("%s is trained on without a reward", trace.ID)
			}
			sum += *trace.Reward
			if rule == trajectory.CreditMain && trace.Role != polar.RoleMain {
				t.Fatalf("%s is %s", trace.ID, trace.Role)
			}
		}
		want := map[trajectory.Credit]float64{
			trajectory.CreditAll: reward * float64(trainable), trajectory.CreditMain: reward * float64(trained),
			trajectory.CreditSplit: reward * float64(min(1, trainable)), trajectory.CreditLast: reward * float64(min(1, trainable)),
		}[rule]
		if math.Abs(sum-want) > 1e-9 {
			t.Fatalf("%s: the rewards add up to %v, want %v", rule, sum, want)
		}
		once := marshal(t, tr)
		if err := trajectory.Reward(&tr, trajectory.Rewards{Session: &reward}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(once, marshal(t, tr)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestBuildingAgainGivesTheSame builds the same record twice with one builder.
func TestBuildingAgainGivesTheSame(t *testing.T) {
	t.Parallel()
	for _, s := range strategies {
		build := builder(t, s.name, s.config)
		rapid.Check(t, func(t *rapid.T) {
			w := drawWorld(t)
			if diff := cmp.Diff(built(build, w.record(w.calls)), built(build, w.record(w.calls))); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}
