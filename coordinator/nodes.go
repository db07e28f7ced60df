package coordinator

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"polar/api"
)

// nodes is who has been heard of. It is not stored: a node that lives is heard
// of again within a heartbeat.
type nodes struct {
	lease, forget time.Duration

	mu   sync.Mutex
	byID map[string]*nodeState
}

type nodeState struct {
	info api.NodeInfo
	// drained says that someone here wants the node to get no more work.
	drained bool
	// polls counts the node's requests that wait here: while there is one the
	// node is alive, however long it waits.
	polls int
	// told are the cancels that the node has been sent.
	told map[api.Cancel]bool
}

func (n *nodes) get(id string) *nodeState {
	if n.byID == nil {
		n.byID = map[string]*nodeState{}
	}
	st := n.byID[id]
	if st == nil {
		st = &nodeState{}
		n.byID[id] = st
	}
	return st
}

// seen records a sign of life.
func (n *nodes) seen(info api.NodeInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := n.get(info.Node)
	info.LastHeartbeat = time.Now()
	st.info = info
}

// polling records that a node's request waits here, until the function it
// returns is called.
func (n *nodes) polling(id string) (done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.get(id).polls++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		st := n.get(id)
		st.polls--
		st.info.LastHeartbeat = time.Now()
	}
}

// fresh forgets what a node of this id was told before it was started anew.
func (n *nodes) fresh(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if st := n.byID[id]; st != nil {
		st.told, st.drained = nil, false
	}
}

// tell reports whether one of the cancels is new to the node.
func (n *nodes) tell(id string, cancels []api.Cancel) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := n.get(id)
	told := make(map[api.Cancel]bool, len(cancels))
	for _, c := range cancels {
		news = news || !st.told[c]
		told[c] = true
	}
	st.told = told
	return news
}

// draining reports whether the node is to get no more work.
func (n *nodes) draining(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := n.get(id)
	return st.drained || st.info.Draining
}

// drain keeps a node from getting more work.
func (n *nodes) drain(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	st, ok := n.byID[id]
	if ok {
		st.drained = true
	}
	return ok
}

// list returns the nodes by id, and forgets those that have been silent for long.
func (n *nodes) list() []api.NodeInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := []api.NodeInfo{}
	now := time.Now()
	for id, st := range n.byID {
		silent := now.Sub(st.info.LastHeartbeat)
		if st.polls == 0 && silent > n.forget {
			delete(n.byID, id)
			continue
		}
		info := st.info
		info.Draining = info.Draining || st.drained
		info.Healthy = st.polls > 0 || silent <= n.lease
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b api.NodeInfo) int { return cmp.Compare(a.Node, b.Node) })
	return out
}
