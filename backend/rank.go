package backend

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
)

// candidate is an endpoint that a call may go to.
type candidate struct {
	name    string
	weight  float64
	avoided bool // it failed lately
	// place, where any has one, decides instead of the key.
	place int
}

// rank orders endpoints for a key by rendezvous hashing: the same key has the
// same first choice as long as that is there, an endpoint that comes or goes
// moves no key between the others, and each gets keys in proportion to its
// weight. Those that failed lately come last.
func rank(list []candidate, key string) []int {
	scores := make([]float64, len(list))
	order := make([]int, len(list))
	for i, c := range list {
		order[i] = i
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.name)) // a hash takes everything
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(key))
		// A number between 0 and 1, never either, of bits that are well mixed.
		x := h.Sum64()
		x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
		x = (x ^ x>>27) * 0x94D049BB133111EB
		x ^= x >> 31
		scores[i] = -c.weight / math.Log((float64(x>>11)+0.5)/(1<<53))
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := list[a], list[b]
		if x.avoided != y.avoided {
			if y.avoided {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(x.place, y.place), cmp.Compare(scores[b], scores[a]))
	})
	return order
}
