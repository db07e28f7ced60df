package trajectory

import "polar"

// PerRequestConfig has no settings.
type PerRequestConfig struct{}

// PerRequest makes one trace of every delivered call: its prompt and its answer.
func PerRequest(PerRequestConfig) (Builder, error) {
	return func(r Record) (polar.Trajectory, error) {
		s, err := sift(r.Calls)
		if err != nil {
			return polar.Trajectory{}, err
		}
		chains := make([]*chain, len(s.turns))
		for i, t := range s.turns {
			chains[i] = newChain(t, polar.SplitRoot, nil)
		}
		return s.trajectory("per_request", chains), nil
	}, nil
}
