package calllog

import (
	"encoding/json"
	"hash/maphash"
	"slices"

	"polar"
	"polar/llm"
)

// deltas knows what a session has recorded, as far as it takes to say what the
// next call adds: every token of its prompts once, and hashes of its messages
// and tools.
type deltas struct {
	seed    maphash.Seed
	prompts []*polar.Prompt // by number of the call; nil without ids
	tokens  promptTree
	// messages is a tree of the lists of messages, said by its edges: which
	// message leads from which node to which. node 0 is the empty list.
	messages map[step]int32
	// carrier is for each node a call whose messages begin with that list.
	carrier []int32
	tools   map[digest]int // the number of each list of tools
}

// digest tells the messages of a session apart. The seed is random, so that
// nobody can make two that collide.
type digest struct {
	hash uint64
	size int
}

type step struct {
	from    int32
	message digest
}

// share is how much of something begins as an earlier call's does.
type share struct {
	call, keep int
}

// added is what a call adds, between its encoding and its acceptance.
type added struct {
	prompt   *polar.Prompt
	place    place
	messages []digest // those of the call's that are new, after node
	node     int32
	tools    digest
	newTools bool
}

func newDeltas() *deltas {
	return &deltas{seed: maphash.MakeSeed(), messages: map[step]int32{}, carrier: []int32{0}, tools: map[digest]int{}}
}

// findPrompt says what of ids an earlier prompt has and copies the rest, so
// that a short addition does not hold a long prompt.
func (d *deltas) findPrompt(ids llm.IDs, a *added) share {
	a.place = d.tokens.find(ids)
	if a.place.depth == 0 {
		a.prompt = polar.NewPrompt(nil, 0, slices.Clone(ids))
		return share{}
	}
	base := share{call: a.place.node.call, keep: a.place.depth}
	a.prompt = polar.NewPrompt(d.prompts[base.call], base.keep, slices.Clone(ids[base.keep:]))
	return base
}

// findMessages says how many messages an earlier call begins with alike.
func (d *deltas) findMessages(messages []json.RawMessage, a *added) share {
	for i, m := range messages {
		sum := d.digest(m)
		if a.messages == nil {
			if next, ok := d.messages[step{a.node, sum}]; ok {
				a.node = next
				continue
			}
			a.messages = make([]digest, 0, len(messages)-i)
		}
		a.messages = append(a.messages, sum)
	}
	return share{call: int(d.carrier[a.node]), keep: len(messages) - len(a.messages)}
}

// findTools is the number of a list of tools that was recorded before.
func (d *deltas) findTools(tools []json.RawMessage, a *added) (int, bool) {
	var h maphash.Hash
	h.SetSeed(d.seed)
	size := 0
	for _, t := range tools {
		maphash.WriteComparable(&h, len(t))
		_, _ = h.Write(t)
		size += len(t)
	}
	a.tools = digest{h.Sum64(), size}
	n, ok := d.tools[a.tools]
	a.newTools = !ok
	return n, ok
}

func (d *deltas) digest(b []byte) digest { return digest{maphash.Bytes(d.seed, b), len(b)} }

// accept takes in what a call added, once it is recorded, and returns its prompt.
func (d *deltas) accept(a added) *polar.Prompt {
	n := len(d.prompts)
	d.prompts = append(d.prompts, a.prompt)
	if a.prompt != nil {
		d.tokens.insert(a.place, a.prompt.Added(), n)
	}
	for _, m := range a.messages {
		node := int32(len(d.carrier))
		d.carrier = append(d.carrier, int32(n))
		d.messages[step{a.node, m}] = node
		a.node = node
	}
	if a.newTools {
		d.tools[a.tools] = len(d.tools)
	}
	return a.prompt
}

// promptTree is a radix tree of prompts. Its labels are part of the prompts.
type promptTree struct{ root promptNode }

type promptNode struct {
	label    llm.IDs
	children []*promptNode
	call     int // one whose prompt comes through here
}

// place is where in the tree a prompt stops being known: within tokens of the
// label of node, depth tokens from the start.
type place struct {
	node, parent  *promptNode
	within, depth int
}

func (t *promptTree) find(ids llm.IDs) place {
	p := place{node: &t.root}
	for p.depth < len(ids) {
		next := p.node.child(ids[p.depth])
		if next == nil {
			return p
		}
		same := commonPrefix(next.label, ids[p.depth:])
		p = place{node: next, parent: p.node, within: same, depth: p.depth + same}
		if same < len(next.label) {
			return p
		}
	}
	return p
}

// insert adds rest, the tokens of a call's prompt after the place it was found.
func (t *promptTree) insert(p place, rest llm.IDs, call int) {
	if len(rest) == 0 {
		return
	}
	n := p.node
	if p.within < len(n.label) {
		n = &promptNode{label: p.node.label[:p.within], children: []*promptNode{p.node}, call: p.node.call}
		p.node.label = p.node.label[p.within:]
		p.parent.children[slices.Index(p.parent.children, p.node)] = n
	}
	n.children = append(n.children, &promptNode{label: rest, call: call})
}

func (n *promptNode) child(first int32) *promptNode {
	for _, c := range n.children {
		if c.label[0] == first {
			return c
		}
	}
	return nil
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
