package export

import (
	"slices"
	"strconv"

	"polar"
	"polar/llm"
)

// mask is the loss mask as numbers.
func mask(t *polar.Trace) llm.IDs {
	out := make(llm.IDs, len(t.LossMask))
	for i, on := range t.LossMask {
		if on {
			out[i] = 1
		}
	}
	return out
}

// logprobs are those of the response, 0 where nothing is trained, or nil if one
// of a trained token is missing: it is never made up.
func logprobs(t *polar.Trace) llm.Logprobs {
	if t.ResponseLogprobs == nil {
		return nil
	}
	out := make(llm.Logprobs, len(t.ResponseLogprobs))
	for i, v := range t.ResponseLogprobs {
		switch {
		case !t.LossMask[i]:
		case v != v:
			return nil
		default:
			out[i] = v
		}
	}
	return out
}

// full puts a value for each token of the prompt before the response's.
func full[S ~[]E, E any](t *polar.Trace, prompt E, response S) S {
	out := make(S, len(t.PromptIDs), len(t.PromptIDs)+len(response))
	for i := range out {
		out[i] = prompt
	}
	return append(out, response...)
}

// tokens is prompt and response.
func tokens(t *polar.Trace) llm.IDs { return slices.Concat(t.PromptIDs, t.ResponseIDs) }

// notPolicy is the version of a token that the policy did not sample.
const notPolicy = -1

// versions is the version that each token of the response was sampled under:
// the number it is, or the order of its first appearance where one of them is
// no number or not known.
func versions(t *polar.Trace) llm.IDs {
	names := make([]string, len(t.ResponseIDs))
	for i, span := range t.PolicyVersions {
		end := len(names)
		if i+1 < len(t.PolicyVersions) {
			end = min(t.PolicyVersions[i+1].Offset, end)
		}
		for k := max(span.Offset, 0); k < end; k++ {
			names[k] = span.Version
		}
	}
	numbers, numeric := map[string]int32{}, true
	order := map[string]int32{}
	for i, name := range names {
		if _, known := order[name]; known || !t.LossMask[i] {
			continue
		}
		order[name] = int32(len(order))
		n, err := strconv.ParseInt(name, 10, 32)
		numeric = numeric && err == nil && n >= 0
		numbers[name] = int32(n)
	}
	if !numeric {
		numbers = order
	}
	out := make(llm.IDs, len(names))
	for i, name := range names {
		out[i] = notPolicy
		if t.LossMask[i] {
			out[i] = numbers[name]
		}
	}
	return out
}

// versionRange is the lowest and the highest version, if all are numbers.
func versionRange(t *polar.Trace) (low, high *int64) {
	for _, span := range t.PolicyVersions {
		n, err := strconv.ParseInt(span.Version, 10, 64)
		if err != nil {
			return nil, nil
		}
		if low == nil || n < *low {
			low = &n
		}
		if high == nil || n > *high {
			high = &n
		}
	}
	return low, high
}

// versionNames are the versions in the order they took over.
func versionNames(t *polar.Trace) []string {
	out := make([]string, 0, len(t.PolicyVersions))
	for _, span := range t.PolicyVersions {
		out = append(out, span.Version)
	}
	return out
}

// span is a run of trained tokens: an answer.
type span struct{ from, to int }

func spans(t *polar.Trace) (out []span) {
	for i := 0; i < len(t.LossMask); i++ {
		if !t.LossMask[i] {
			continue
		}
		from := i
		for i < len(t.LossMask) && t.LossMask[i] {
			i++
		}
		out = append(out, span{from, i})
	}
	return out
}
