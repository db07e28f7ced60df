package gateway

import (
	"fmt"
	"slices"

	"polar/llm"
)

// prepare makes of what the harness asked what the engine is asked.
func (s *session) prepare(cfg *Config, req llm.Request) (llm.Request, error) {
	req, err := s.converse(cfg, req)
	if err != nil {
		return req, err
	}
	return s.impose(req, cfg.Model)
}

// converse makes the conversation of a request complete and fit for the engine.
func (s *session) converse(cfg *Config, req llm.Request) (llm.Request, error) {
	if req.Previous != "" {
		earlier, err := s.conversation(req.Previous)
		if err != nil {
			return req, err
		}
		req.Messages = join(earlier, req.Messages)
	}
	if cfg.LateSystem == LateSystemUser {
		lateSystemAsUser(req.Messages)
	}
	return req, nil
}

// conversation is what was said up to and with the answer that has that id,
// without the instructions at its beginning: each call has its own.
func (s *session) conversation(id string) ([]llm.Message, error) {
	calls, err := s.log.Calls()
	if err != nil {
		return nil, fmt.Errorf("read the calls of session %s: %w", s.rec.Session, err)
	}
	for _, c := range calls {
		if string(c.ID) != id || c.Finish == "" || c.Finish == llm.FinishAbort {
			continue
		}
		raw := append(slices.Clip(c.Messages), c.Reply)
		messages := make([]llm.Message, len(raw))
		for i := range raw {
			if messages[i], err = llm.ParseMessage(raw[i]); err != nil {
				return nil, fmt.Errorf("read message %d of call %s: %w", i, c.ID, err)
			}
		}
		if messages[0].Role == "system" {
			messages = messages[1:]
		}
		return messages, nil
	}
	unknown := llm.Errorf(llm.BadRequest, "there is no such answer in this session")
	unknown.Param = "previous_response_id"
	return nil, unknown
}

// join puts an earlier conversation before messages, after the instructions
// that these begin with.
func join(earlier, messages []llm.Message) []llm.Message {
	out := make([]llm.Message, 0, len(earlier)+len(messages))
	if len(messages) > 0 && messages[0].Role == "system" {
		out, messages = append(out, messages[0]), messages[1:]
	}
	return append(append(out, earlier...), messages...)
}

// isSystem reports whether a message instructs the model.
func isSystem(m llm.Message) bool { return m.Role == "system" || m.Role == "developer" }

// lateSystemAsUser makes user messages of the instructions in the middle of a
// conversation, for chat templates that refuse them there. They stay in their
// places: moved to the front they would rewrite the prompt of every turn.
func lateSystemAsUser(messages []llm.Message) {
	begun := false
	for i, m := range messages {
		begun = begun || !isSystem(m)
		if begun && isSystem(m) {
			messages[i] = m.WithRole("user")
		}
	}
}

// impose puts what the session's task says in the place of what the harness
// asked, and refuses a call that is over the budget.
func (s *session) impose(req llm.Request, model string) (llm.Request, error) {
	if model != "" {
		req.Model = model
	}
	req.Sampling = s.rec.Sampling.Over(req.Sampling)
	return req, s.spend(&req.Sampling)
}

// spend counts a call against the budget, and bounds its answer by what is
// left of it. Calls that run at the same time may each get all that is left.
func (s *session) spend(sampling *llm.Sampling) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.rec.Budget
	if b.MaxCalls > 0 && s.calls >= b.MaxCalls {
		return llm.Errorf(llm.OverBudget, "the session's budget of %d calls is spent", b.MaxCalls)
	}
	if b.MaxCompletionTokens > 0 {
		left := b.MaxCompletionTokens - s.tokens
		if left <= 0 {
			return llm.Errorf(llm.OverBudget, "the session's budget of %d completion tokens is spent", b.MaxCompletionTokens)
		}
		if sampling.MaxTokens == nil || *sampling.MaxTokens > left {
			sampling.MaxTokens = &left
		}
	}
	s.calls++
	return nil
}
