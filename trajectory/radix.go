package trajectory

import (
	"slices"

	"polar"
	"polar/llm"
)

// tree is a radix tree of token sequences. A prompt that adds to an earlier one
// is entered from where that one ends, so that the work is in its new tokens.
type tree struct {
	root     *node
	children map[branch]*node
	ends     map[*polar.Prompt]*node
	// age counts the times an open turn came to end above other nodes.
	age int
}

// branch names a child by its parent and its first token.
type branch struct {
	from  *node
	token int32
}

// node is a place in the tree at which a sequence ends or several part.
type node struct {
	parent *node
	// label is the tokens from the parent to here. It aliases prompts.
	label llm.IDs
	depth int
	// prompts and answers are the turns whose prompt ends here, and whose prompt
	// and answer do, in canonical order.
	prompts, answers []*turn
	inner            bool // has children
	// open counts the turns that end here, as prompt or as answer, and are not
	// continued. skip is the nearest node above that had any at the given age
	// of the tree, nil for none.
	open    int
	skip    *node
	skipAge int
	// shared is how much of the prompt of sharer the paths through here share.
	sharer *turn
	shared int
}

// newTree makes room for some number of turns.
func newTree(turns int) *tree {
	return &tree{
		root: &node{}, age: 1,
		children: make(map[branch]*node, 3*turns),
		ends:     make(map[*polar.Prompt]*node, turns),
	}
}

// prompt enters a prompt, and those it builds on, and returns where it ends.
func (t *tree) prompt(p *polar.Prompt) *node {
	var missing []*polar.Prompt
	for q := p; q != nil && t.ends[q] == nil; {
		missing = append(missing, q)
		q, _ = q.Base()
	}
	for _, q := range slices.Backward(missing) {
		base, keep := q.Base()
		from := t.root
		if base != nil {
			from = t.ends[base]
			for from.parent != nil && from.parent.depth >= keep {
				from = from.parent
			}
		}
		t.ends[q] = t.enter(from, keep, q.Added())
	}
	return t.ends[p]
}

// enter walks down from the place at depth at on the way to n, adds what of ids
// is not in the tree, and returns where ids end.
func (t *tree) enter(n *node, at int, ids llm.IDs) *node {
	for len(ids) > 0 {
		rest := n.label[len(n.label)-(n.depth-at):]
		if len(rest) == 0 {
			next, ok := t.children[branch{n, ids[0]}]
			if !ok {
				return t.attach(n, ids)
			}
			n = next
			continue
		}
		same := commonPrefix(rest, ids)
		at, ids = at+same, ids[same:]
		if same < len(rest) && len(ids) > 0 {
			return t.attach(t.split(n, at), ids)
		}
	}
	return t.split(n, at)
}

func (t *tree) attach(n *node, ids llm.IDs) *node {
	leaf := &node{parent: n, label: ids, depth: n.depth + len(ids)}
	n.inner = true
	t.children[branch{n, ids[0]}] = leaf
	return leaf
}

// split makes sure that there is a node at depth at on the way to n. n stays
// the node it is, so that what ends there need not move.
func (t *tree) split(n *node, at int) *node {
	if at == n.depth {
		return n
	}
	cut := len(n.label) - (n.depth - at)
	mid := &node{parent: n.parent, label: n.label[:cut:cut], depth: at, inner: true}
	t.children[branch{n.parent, n.label[0]}] = mid
	n.parent, n.label = mid, n.label[cut:]
	t.children[branch{mid, n.label[0]}] = n
	return mid
}

// opened notes that an open turn ends at n.
func (t *tree) opened(n *node) {
	n.open++
	if n.inner { // those below may have skipped it
		t.age++
	}
}

// openAbove is the nearest node above n at which an open turn ends, or nil. It
// remembers the way, so that a long conversation is not climbed at every turn.
func (t *tree) openAbove(n *node) *node {
	up := n.parent
	for up != nil && up.open == 0 {
		if up.skipAge == t.age {
			up = up.skip
		} else {
			up = up.parent
		}
	}
	n.skip, n.skipAge = up, t.age
	return up
}

// after writes out the tokens on the way to n from depth on.
func (n *node) after(depth int) llm.IDs {
	out := make(llm.IDs, n.depth-depth)
	for ; n.depth > depth; n = n.parent {
		label := n.label
		if begin := n.depth - len(label); begin < depth {
			label = label[depth-begin:]
		}
		copy(out[n.depth-len(label)-depth:], label)
	}
	return out
}

func commonPrefix(a, b llm.IDs) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
