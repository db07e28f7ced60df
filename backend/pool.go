package backend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"polar/llm"
)

// Weighted is an engine of a pool.
type Weighted struct {
	// Name tells the engines of a pool apart and decides with the affinity of a
	// call where it goes; its URL is a good one.
	Name   string
	Engine Engine
	// Weight is its share of the calls compared with the others; 0 means 1.
	Weight float64
}

type pool struct {
	members []*member
	turn    atomic.Uint64 // counts the calls without an affinity
}

type member struct {
	Weighted
	avoidUntil atomic.Int64 // nanoseconds of the Unix clock
}

// NewPool makes one Engine of several. Calls with the same affinity go to the
// same engine, the others are spread. An engine that fails before it says
// anything is replaced by the next for that call and asked only after the
// others for some seconds. Closing the pool closes its engines.
func NewPool(engines []Weighted) (Engine, error) {
	if len(engines) == 0 {
		return nil, errors.New("a pool needs an engine")
	}
	p := &pool{}
	for i, w := range engines {
		switch {
		case w.Engine == nil:
			return nil, fmt.Errorf("engines[%d]: missing", i)
		case w.Weight < 0:
			return nil, fmt.Errorf("engines[%d].weight: must not be negative", i)
		case slices.ContainsFunc(p.members, func(m *member) bool { return m.Name == w.Name }):
			return nil, fmt.Errorf("engines[%d].name: %q is there twice", i, w.Name)
		}
		w.Weight = or(w.Weight, 1)
		p.members = append(p.members, &member{Weighted: w})
	}
	return p, nil
}

func (p *pool) order(affinity string) []*member {
	if affinity == "" {
		affinity = strconv.FormatUint(p.turn.Add(1), 10)
	}
	now := time.Now().UnixNano()
	candidates := make([]candidate, len(p.members))
	for i, m := range p.members {
		candidates[i] = candidate{name: m.Name, weight: m.Weight, avoided: now < m.avoidUntil.Load()}
	}
	out := make([]*member, len(p.members))
	for i, at := range rank(candidates, affinity) {
		out[i] = p.members[at]
	}
	return out
}

func (p *pool) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		order := p.order(req.Affinity)
		for i, m := range order {
			if m.pass(ctx, req, yield, i == len(order)-1) {
				return
			}
		}
	}
}

// pass yields the engine's answer. If the first thing is an error that another
// engine may not have, and this is not the last, it yields nothing and returns
// false.
func (m *member) pass(ctx context.Context, req llm.Request, yield func(llm.Event, error) bool, last bool) bool {
	begun := false
	for e, err := range m.Engine.Generate(ctx, req) {
		if err != nil && ctx.Err() == nil && isElsewhereBetter(err) {
			m.avoidUntil.Store(time.Now().Add(avoidFor).UnixNano())
			if !begun && !last {
				return false
			}
		}
		begun = true
		if !yield(e, err) {
			break
		}
	}
	return true
}

// isElsewhereBetter reports an error of the engine rather than of the call.
func isElsewhereBetter(err error) bool {
	e, ok := errors.AsType[*llm.Error](err)
	return ok && (e.Kind == llm.EngineFailed || e.Kind == llm.EngineTimeout || e.Kind == llm.RateLimited)
}

// Models lists every model that any of the engines serves.
func (p *pool) Models(ctx context.Context) ([]string, error) {
	var names []string
	var failed []error
	for _, m := range p.members {
		list, err := m.Engine.Models(ctx)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, name := range list {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(failed) == len(p.members) {
		return nil, errors.Join(failed...)
	}
	return names, nil
}

// Probe probes every engine and says what can be counted on whichever answers.
func (p *pool) Probe(ctx context.Context) (Probe, error) {
	endpoints := make([]Probe, len(p.members))
	var failed []error
	for i, m := range p.members {
		probe, err := m.Engine.Probe(ctx)
		if err != nil {
			failed = append(failed, err)
			probe = Probe{URL: m.Name, Error: err.Error()}
		}
		endpoints[i] = probe
	}
	if len(failed) == len(p.members) {
		return Probe{}, errors.Join(failed...)
	}
	return together("pool", "", endpoints), nil
}

// Health is nil if any engine can serve.
func (p *pool) Health(ctx context.Context) error {
	var failed []error
	for _, m := range p.members {
		err := m.Engine.Health(ctx)
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// CountTokens asks the engine that the call would go to, or the next that can.
func (p *pool) CountTokens(ctx context.Context, req llm.Request) (int, error) {
	failed := fmt.Errorf("count tokens: %w", errors.ErrUnsupported)
	for _, m := range p.order(req.Affinity) {
		counter, ok := m.Engine.(TokenCounter)
		if !ok {
			continue
		}
		n, err := counter.CountTokens(ctx, req)
		if err == nil || !errors.Is(err, errors.ErrUnsupported) && !isElsewhereBetter(err) {
			return n, err
		}
		failed = err
	}
	return 0, failed
}

func (p *pool) Close() error {
	var failed []error
	for _, m := range p.members {
		failed = append(failed, m.Engine.Close())
	}
	return errors.Join(failed...)
}
