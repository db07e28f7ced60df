package gateway

import "polar/llm"

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
