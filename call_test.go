package polar_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polar"
	"polar/llm"
)

func TestPromptHasTheTokensItWasMadeOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var prompts []*polar.Prompt
		var whole []llm.IDs
		for range rapid.IntRange(1, 12).Draw(t, "prompts") {
			var base *polar.Prompt
			var want llm.IDs
			if len(prompts) > 0 && rapid.Bool().Draw(t, "has a base") {
				j := rapid.IntRange(0, len(prompts)-1).Draw(t, "base")
				base, want = prompts[j], whole[j][:rapid.IntRange(0, len(whole[j])).Draw(t, "keep")]
			}
			add := llm.IDs(rapid.SliceOfN(rapid.Int32(), 0, 5).Draw(t, "add"))
			p := polar.NewPrompt(base, len(want), add)
			prompts, whole = append(prompts, p), append(whole, slices.Concat(llm.IDs{}, want, add))
		}
		for i, p := range prompts {
			if got := p.IDs(); !slices.Equal(got, whole[i]) || p.Len() != len(whole[i]) {
				t.Fatalf("prompt %d is %v of length %d, want %v", i, got, p.Len(), whole[i])
			}
			base, keep := p.Base()
			if rebuilt := slices.Concat(base.IDs()[:keep], p.Added()); !slices.Equal(rebuilt, whole[i]) {
				t.Fatalf("prompt %d is not %d tokens of its base and %v", i, keep, p.Added())
			}
		}
	})
}

func TestPromptBuildsOnTheOneThatHasTheTokensItKeeps(t *testing.T) {
	t.Parallel()
	first := polar.NewPrompt(nil, 0, llm.IDs{1, 2, 3})
	second := polar.NewPrompt(first, 3, llm.IDs{4})
	third := polar.NewPrompt(second, 2, llm.IDs{5})
	if base, keep := third.Base(); base != first || keep != 2 {
		t.Errorf("base %p and keep %d, want the first prompt, %p, and 2", base, keep, first)
	}
	if base, keep := polar.NewPrompt(second, 0, nil).Base(); base != nil || keep != 0 {
		t.Errorf("a prompt that keeps nothing has a base and keeps %d", keep)
	}
}

func TestPromptOfNothing(t *testing.T) {
	t.Parallel()
	var none *polar.Prompt
	if none.Len() != 0 || none.IDs() != nil {
		t.Errorf("a nil prompt has %d tokens, %v", none.Len(), none.IDs())
	}
	if empty := polar.NewPrompt(nil, 0, nil); empty.Len() != 0 || empty.IDs() == nil {
		t.Errorf("an empty prompt is not an empty sequence: %d, %v", empty.Len(), empty.IDs())
	}
}

func TestIDsOfAPromptAreACopy(t *testing.T) {
	t.Parallel()
	p := polar.NewPrompt(nil, 0, llm.IDs{1, 2})
	p.IDs()[0] = 9
	if diff := cmp.Diff(llm.IDs{1, 2}, p.IDs()); diff != "" {
		t.Error(diff)
	}
}

func TestAPromptCannotKeepMoreThanItsBaseHas(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	polar.NewPrompt(polar.NewPrompt(nil, 0, llm.IDs{1}), 2, nil)
}
