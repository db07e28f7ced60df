package trajectory

import "polar"

// PerRequestConfig is the settings of PerRequest.
type PerRequestConfig struct{ Training }

// PerRequest makes one trace of every delivered call: its prompt and its answer.
func PerRequest(c PerRequestConfig) (Builder, error) {
	training, err := c.check()
	if err != nil {
		return nil, err
	}
	return func(r Record) (polar.Trajectory, error) {
		s, err := sift(r.Calls)
		if err != nil {
			return polar.Trajectory{}, err
		}
		grow(s.turns, PrefixConfig{}, r.Instruction) // what a call is for shows among the others
		chains := make([]*chain, len(s.turns))
		for i, t := range s.turns {
			role := t.chain.marker
			chains[i] = newChain(t, polar.SplitRoot, nil)
			chains[i].marker = role
		}
		return s.trajectory("per_request", chains, training), nil
	}, nil
}
