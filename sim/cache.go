package sim

import "sync"

// blockTokens is how many tokens are cached together.
const blockTokens = 16

// cache knows which beginnings of prompts came before, block by block, as an
// engine's prefix cache does. Past maxSeen blocks it forgets all.
type cache struct {
	mu     sync.Mutex
	blocks map[uint64]struct{}
}

func newCache() *cache { return &cache{blocks: map[uint64]struct{}{}} }

// remember takes a prompt in and says how many tokens of its beginning were
// known; -1 without a cache.
func (c *cache) remember(prompt []int32) int {
	if c == nil {
		return -1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.blocks) >= maxSeen {
		clear(c.blocks)
	}
	known, all := 0, true
	h := uint64(1)
	for i := 0; i+blockTokens <= len(prompt); i += blockTokens {
		for _, id := range prompt[i : i+blockTokens] {
			h = mix(h, uint64(uint32(id)))
		}
		if _, there := c.blocks[h]; there && all {
			known += blockTokens
		} else {
			all = false
			c.blocks[h] = struct{}{}
		}
	}
	return known
}
