package backend

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"strconv"

	"polar/llm"
)

// withRoom asks again, for a shorter answer, when the engine refuses a call only
// because its prompt and the longest answer it allows are together over the
// context. Harnesses ask for 64,000 tokens and more whatever the model; without
// this each of their calls would fail.
func withRoom(ctx context.Context, req llm.Request, generate func(context.Context, llm.Request) iter.Seq2[llm.Event, error]) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		for e, err := range generate(ctx, req) {
			room := roomLeft(err, req.Sampling.MaxTokens)
			if room == 0 {
				if !yield(e, err) {
					return
				}
				continue
			}
			req.Sampling.MaxTokens = &room
			generate(ctx, req)(yield)
			return
		}
	}
}

var (
	contextLimit = regexp.MustCompile(`maximum context length (?:is|of) (\d+)`)
	promptLength = regexp.MustCompile(`(?:\((\d+) in the messages|has (\d+) input tokens|(\d+) tokens from the input messages)`)
)

// roomLeft is how long an answer could be after a prompt that fits by itself, or
// 0 if that is not what err is about.
func roomLeft(err error, asked *int) int {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok || e.Kind != llm.ContextOverflow || asked == nil {
		return 0
	}
	limit, prompt := firstNumber(contextLimit, e.Message), firstNumber(promptLength, e.Message)
	if limit == 0 || prompt == 0 || prompt >= limit || prompt+*asked <= limit {
		return 0
	}
	return limit - prompt
}

func firstNumber(pattern *regexp.Regexp, text string) int {
	for _, group := range pattern.FindStringSubmatch(text) {
		if n, err := strconv.Atoi(group); err == nil {
			return n
		}
	}
	return 0
}
