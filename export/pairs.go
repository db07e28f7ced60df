package export

import (
	"context"
	"errors"
	"fmt"
)

// group is the best and the worst session of a task so far. Only where they are
// is kept, so that a million tasks fit in memory.
type group struct {
	best, worst candidate
}

type candidate struct {
	place  Place
	ref    string
	reward float64
}

// pairs finds the best and the worst session of every task and writes a row for
// each two that differ, in the order in which the tasks' first results came. The
// first of equals wins.
func (j *job) pairs(ctx context.Context) error {
	groups, err := j.groups(ctx)
	if err != nil {
		return err
	}
	skip := j.state.Groups
	for i, g := range groups {
		if g.best.reward <= g.worst.reward {
			j.state.LeftOut[groupsNoDiffer]++
			continue
		}
		if i < skip {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		row, err := j.pair(ctx, g)
		if err != nil {
			return err
		}
		if err := j.out.add(row, 0); err != nil {
			return err
		}
		j.state.Rows++
		j.state.Groups = i + 1
		if err := j.cutIfFull(); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) groups(ctx context.Context) ([]*group, error) {
	j.state.LeftOut, j.state.Results = map[string]int{}, 0 // counted anew, also when resumed
	var order []*group
	byTask := map[int64]*group{}
	err := j.Source.Each(ctx, 0, j.state.Until, func(item Item) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		s, err := j.open(item)
		if err != nil {
			return err
		}
		j.Progress(Progress{Done: item.Seq, Total: j.state.Until, Rows: j.state.Rows})
		if s == nil {
			return nil
		}
		t := answerOf(s)
		if t == nil {
			s.leaveOut(sessionsNoAnswer)
			return nil
		}
		c := candidate{place: item.Place, ref: item.Ref, reward: *t.Reward}
		c.place.Labels = nil
		g := byTask[item.TaskSeq]
		switch {
		case g == nil:
			g = &group{best: c, worst: c}
			byTask[item.TaskSeq] = g
			order = append(order, g)
		case c.reward > g.best.reward:
			g.best = c
		case c.reward < g.worst.reward:
			g.worst = c
		}
		return nil
	})
	return order, err
}

func (j *job) pair(ctx context.Context, g *group) (any, error) {
	chosen, err := j.read(ctx, g.best)
	if err != nil {
		return nil, err
	}
	rejected, err := j.read(ctx, g.worst)
	if err != nil {
		return nil, err
	}
	return j.form.pair(chosen, rejected)
}

var errChanged = errors.New("it is not what it was a moment ago")

func (j *job) read(ctx context.Context, c candidate) (preference, error) {
	raw, err := j.Source.Read(ctx, c.ref)
	if err != nil {
		return preference{}, fmt.Errorf("read result %d: %w", c.place.Seq, err)
	}
	s, err := j.choose(c.place, raw, map[string]int{})
	if err != nil {
		return preference{}, err
	}
	if s == nil || answerOf(s) == nil {
		return preference{}, fmt.Errorf("read result %d: %w", c.place.Seq, errChanged)
	}
	return preference{session: s, trace: answerOf(s)}, nil
}
