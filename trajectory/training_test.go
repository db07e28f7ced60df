package trajectory_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/llm"
	"polar/trajectory"
)

// agents is a session of all roles, in traces 0 to 4: a title, the task, a
// sub-agent, a compaction, and what went on from it.
func agents() trajectory.Record {
	return trajectory.Record{Instruction: task, Calls: recorded([]request{
		{open, "", []said{{"system", "You are a title generator."}, {"user", task}}, "Hello"},
		{open, openTools, openOpening, "Delegating."},
		{openChild, "bash", []said{openOpening[0], {"user", "SUBAGENT-TASK"}}, "Done."},
		{open, "", []said{{"system", "You are a context summarization agent."}, {"user", "<conversation>…"}}, summary},
		{open, openTools, []said{openOpening[0], {"user", "What did we do so far?"}, {"assistant", summary}, {"user", "Continue"}}, "All done."},
	})}
}

// decided writes role, reward, whether anything is trained on, and the filter.
func decided(t *testing.T, tr polar.Trajectory) []string {
	t.Helper()
	out := []string{}
	for _, trace := range tr.Traces {
		s := string(trace.Role)
		if trace.Trainable() > 0 {
			s += " trained"
		}
		if trace.Reward != nil {
			s += fmt.Sprint(" ", *trace.Reward)
		}
		if raw := trace.Metadata["training_filter"]; raw != nil {
			s += " " + string(raw)
		}
		out = append(out, s)
	}
	return out
}

const (
	notAuxiliary = ` {"masked":true,"trainable":false,"reason":"role","detail":"auxiliary"}`
	notMain      = ` {"masked":true,"trainable":false,"reason":"credit","detail":"main"}`
	notLast      = ` {"masked":true,"trainable":false,"reason":"credit","detail":"last"}`
)

func TestWhatIsTrainedOnAndRewarded(t *testing.T) {
	t.Parallel()
	one := 1.0
	tests := map[string]struct {
		config  string
		rewards trajectory.Rewards
		want    []string
	}{
		"all but auxiliary": {
			`{}`,
			trajectory.Rewards{},
			[]string{"auxiliary" + notAuxiliary, "main trained", "subagent trained", "compaction trained", "main trained"},
		},
		"some roles": {
			`{"train_roles":["subagent","auxiliary"]}`,
			trajectory.Rewards{},
			[]string{
				"auxiliary trained", `main {"masked":true,"trainable":false,"reason":"role","detail":"main"}`, "subagent trained",
				`compaction {"masked":true,"trainable":false,"reason":"role","detail":"compaction"}`,
				`main {"masked":true,"trainable":false,"reason":"role","detail":"main"}`,
			},
		},
		"credit to all": {
			`{}`,
			trajectory.Rewards{Session: &one},
			[]string{"auxiliary 1" + notAuxiliary, "main trained 1", "subagent trained 1", "compaction trained 1", "main trained 1"},
		},
		"credit to main": {
			`{"credit":"main"}`,
			trajectory.Rewards{Session: &one},
			[]string{"auxiliary" + notAuxiliary, "main trained 1", "subagent" + notMain, "compaction" + notMain, "main trained 1"},
		},
		"credit split over what is trained on": {
			`{"credit":"split"}`,
			trajectory.Rewards{Session: &one},
			[]string{"auxiliary" + notAuxiliary, "main trained 0.25", "subagent trained 0.25", "compaction trained 0.25", "main trained 0.25"},
		},
		"credit to the last": {
			`{"credit":"last"}`,
			trajectory.Rewards{Session: &one},
			[]string{"auxiliary" + notAuxiliary, "main" + notLast, "subagent" + notLast, "compaction" + notLast, "main trained 1"},
		},
		"credit to the last that is trained on, when main is not": {
			`{"credit":"last","train_roles":["subagent","compaction"]}`,
			trajectory.Rewards{Session: &one},
			[]string{
				"auxiliary" + notAuxiliary, `main {"masked":true,"trainable":false,"reason":"role","detail":"main"}`, "subagent" + notLast, "compaction trained 1",
				`main {"masked":true,"trainable":false,"reason":"role","detail":"main"}`,
			},
		},
		"the rewards of traces win over every rule": {
			`{"credit":"last"}`,
			trajectory.Rewards{Session: &one, Traces: []float64{1, 2, 3, 4, 5}},
			[]string{"auxiliary 1" + notAuxiliary, "main trained 2", "subagent trained 3", "compaction trained 4", "main trained 5"},
		},
		"no reward leaves nobody out": {
			`{"credit":"main"}`,
			trajectory.Rewards{},
			[]string{"auxiliary" + notAuxiliary, "main trained", "subagent trained", "compaction trained", "main trained"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, strategy := range []string{"prefix_merging", "per_request"} {
				tr := build(t, strategy, test.config, agents())
				for range 2 { // giving the same again changes nothing
					if err := trajectory.Reward(&tr, test.rewards); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(test.want, decided(t, tr)); diff != "" {
						t.Errorf("%s: %s", strategy, diff)
					}
				}
			}
		})
	}
}

func TestMaskedTokensAreDeliveredAndNotTrained(t *testing.T) {
	t.Parallel()
	tr := build(t, "prefix_merging", `{}`, agents())
	var stats struct {
		Sampled   int `json:"sampled_tokens"`
		Delivered int `json:"delivered_tokens"`
		Abandoned int `json:"abandoned_tokens"`
		Trained   int `json:"trained_tokens"`
	}
	if err := json.Unmarshal(tr.Metadata["reconstruction_stats"], &stats); err != nil {
		t.Fatal(err)
	}
	title := len("Hello|")
	if stats.Delivered+stats.Abandoned != stats.Sampled || stats.Trained != stats.Delivered-title {
		t.Errorf("%+v", stats)
	}
	if masked := tr.Traces[0]; len(masked.ResponseIDs) != title || masked.ResponseLogprobs[0] != -1 {
		t.Errorf("the tokens of a masked trace are not kept: %+v", masked)
	}
}

func TestRewardsThatDoNotFit(t *testing.T) {
	t.Parallel()
	tr := build(t, "prefix_merging", `{}`, agents())
	if err := trajectory.Reward(&tr, trajectory.Rewards{Traces: []float64{1}}); err == nil || err.Error() != "1 rewards for 5 traces" {
		t.Errorf("error %v", err)
	}
}

func TestComponentsFollowTheReward(t *testing.T) {
	t.Parallel()
	tr := build(t, "prefix_merging", `{"credit":"main"}`, agents())
	one := 1.0
	if err := trajectory.Reward(&tr, trajectory.Rewards{Session: &one, Components: map[string]float64{"tests": 1}}); err != nil {
		t.Fatal(err)
	}
	for _, trace := range tr.Traces {
		if _, has := trace.RewardComponents["tests"]; has != (trace.Role == polar.RoleMain) {
			t.Errorf("%s has components %v", trace.ID, trace.RewardComponents)
		}
	}
}

func TestTheRewardOfASessionIsNotThatOfAShare(t *testing.T) {
	t.Parallel()
	tr := build(t, "prefix_merging", `{"credit":"split"}`, agents())
	one := 1.0
	if err := trajectory.Reward(&tr, trajectory.Rewards{Session: &one}); err != nil {
		t.Fatal(err)
	}
	tr.SetMeta("evaluation", map[string]any{"reward": one})
	if got := tr.Reward(); got == nil || *got != 1 {
		t.Errorf("reward %v", got)
	}
}

func TestToolCallsThatCouldNotBeParsed(t *testing.T) {
	t.Parallel()
	marked := func(detail string) string {
		return ` {"masked":false,"trainable":true,"reason":"parser_invalid_tool_call","detail":"` + detail + `","call_ids":["c1"],"original_reward":1}`
	}
	tests := map[string]struct{ finish, reply, want string }{
		"a call that is none":         {llm.FinishToolCalls, assistant("ls"), "main trained 0" + marked("finish_without_call")},
		"a tag by itself":             {llm.FinishStop, assistant("I look.\n <tool_call>\n{\"name\": \"ls\""), "main trained 0" + marked("stray_tag")},
		"an end without a beginning":  {llm.FinishStop, assistant("{}\n</tool_call>"), "main trained 0" + marked("stray_tag")},
		"a function's tag":            {llm.FinishStop, assistant("<function=ls>\n"), "main trained 0" + marked("stray_tag")},
		"a tag in a sentence":         {llm.FinishStop, assistant("write <tool_call> first"), "main trained 1"},
		"a tag in a fence":            {llm.FinishStop, assistant("so:\n```\n<tool_call>\n```\n"), "main trained 1"},
		"a tag beside a call":         {llm.FinishToolCalls, useTool("ls", "{}"), "main trained 1"},
		"nothing to see in the reply": {llm.FinishStop, `null`, "main trained 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := of(calls([]asked{
				{prompt: "u:", answer: "hi|", messages: []string{user("u")}, reply: assistant("hi")},
				{prompt: "u:hi|t:", answer: "x|", finish: test.finish, messages: []string{user("u"), assistant("hi"), user("t")}, reply: test.reply},
			}))
			one := 1.0
			for config, want := range map[string]string{`{"mark_tool_errors":true}`: test.want, `{}`: "main trained 1"} {
				tr := build(t, "prefix_merging", config, record)
				for range 2 {
					if err := trajectory.Reward(&tr, trajectory.Rewards{Session: &one}); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff([]string{want}, decided(t, tr)); diff != "" {
						t.Errorf("%s: %s", config, diff)
					}
				}
			}
		})
	}
}
