package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"polar/rawjson"
)

// How often a router is asked for its workers, and a server whether it is one
// after all.
const (
	refreshWorkers = 5 * time.Second
	refreshServer  = time.Minute
	askWorkers     = 3 * time.Second
)

// workers are the servers behind a URL: those of a router, or the server itself.
type workers struct {
	root *sglangServer

	mu    sync.Mutex
	list  []*sglangServer // empty if the URL is no router
	again time.Time       // when to ask next
	turn  uint64          // counts the calls without an affinity
}

func newWorkers(root *sglangServer) *workers { return &workers{root: root} }

// order lists the servers in the order a call should try them. It is never
// empty. Calls with the same affinity go to the same server, others take turns;
// one that failed lately comes last.
func (w *workers) order(ctx context.Context, affinity string) []*sglangServer {
	list, turn := w.current(ctx)
	if len(list) == 0 {
		return []*sglangServer{w.root}
	}
	candidates := make([]candidate, len(list))
	now := time.Now()
	for i, s := range list {
		candidates[i] = candidate{name: s.url, weight: 1, avoided: s.isAvoided(now)}
	}
	if affinity == "" {
		affinity = strconv.FormatUint(turn, 10)
		for i := range candidates { // in turn, where nothing is to be kept together
			candidates[i].place = (i + len(list) - int(turn%uint64(len(list)))) % len(list)
		}
	}
	out := make([]*sglangServer, len(list))
	for i, at := range rank(candidates, affinity) {
		out[i] = list[at]
	}
	return out
}

// current is the list of workers, asked for again when it is old. Only one call
// waits for that; the others take what is known.
func (w *workers) current(ctx context.Context) ([]*sglangServer, uint64) {
	w.mu.Lock()
	w.turn++
	list, turn := w.list, w.turn-1
	due := !time.Now().Before(w.again)
	if due {
		w.again = time.Now().Add(refreshWorkers)
	}
	w.mu.Unlock()
	if !due {
		return list, turn
	}
	found, isRouter, err := w.ask(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil: // what was known stands
	case !isRouter:
		w.list, w.again = nil, time.Now().Add(refreshServer)
	default:
		w.list = w.adopt(found)
	}
	return w.list, turn
}

// ask reads the list of workers. A router that splits prompts from answers
// between its workers must be asked itself, and so counts as none.
func (w *workers) ask(ctx context.Context) (urls []string, isRouter bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWorkers)
	defer cancel()
	answer, err := w.root.ask(ctx, http.MethodGet, "/workers", nil, maxListBytes)
	if f, ok := errors.AsType[*failure](err); ok && !f.retry {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var said struct {
		Workers []json.RawMessage `json:"workers"`
	}
	if json.Unmarshal(answer, &said) != nil || len(said.Workers) == 0 {
		return nil, false, nil
	}
	seen := map[string]bool{}
	for _, raw := range said.Workers {
		worker, err := readWorker(raw)
		switch {
		case err != nil:
			return nil, false, nil
		case worker.healthy && !seen[worker.url]:
			seen[worker.url] = true
			urls = append(urls, worker.url)
		}
	}
	return urls, len(urls) > 0, nil
}

type worker struct {
	url     string
	healthy bool
}

// readWorker reads one entry of a router's list; one that cannot be called
// directly is an error.
func readWorker(raw json.RawMessage) (worker, error) {
	o, err := rawjson.ParseObject(raw)
	if err != nil {
		return worker{}, err
	}
	text := func(key string) string {
		s, _ := rawjson.String(o.Get(key)) // "" stands for what is not there
		return s
	}
	if kind := text("worker_type"); kind != "" && kind != "regular" {
		return worker{}, fmt.Errorf("a %s worker cannot be called directly", kind)
	}
	address := strings.TrimRight(text("url"), "/")
	// One data-parallel rank of a server is named with its number after an @.
	if base, rank, ok := strings.Cut(address, "@"); ok {
		if _, err := strconv.Atoi(rank); err == nil {
			address = base
		}
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return worker{}, fmt.Errorf("a worker at %q cannot be called directly", address)
	}
	return worker{url: address, healthy: string(o.Get("is_healthy")) != "false"}, nil
}

// adopt makes servers of URLs and keeps what is known of those that were there.
func (w *workers) adopt(urls []string) []*sglangServer {
	list := make([]*sglangServer, len(urls))
	for i, u := range urls {
		for _, before := range w.list {
			if before.url == u {
				list[i] = before
			}
		}
		if list[i] == nil {
			list[i] = newSGLangServer(w.root.at(u), w.root.config)
		}
	}
	return list
}
