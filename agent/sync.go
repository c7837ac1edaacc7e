package agent

import (
	"context"
	"errors"

	"subctl/agent/role"
	"subctl/dataplane"
)

// cabler returns the kernel's view of the node's cables, including the cables that an earlier agent
// has made. It is nil if the target reports no cables.
func (a *agent) cabler() dataplane.Cabler {
	t, err := a.target(a.Role.Owner)
	if err != nil {
		return nil // sync reports it
	}
	c, _ := t.(dataplane.Cabler)
	return c
}

// conflicts describes the objects of other programs that affect those of the role.
func (a *agent) conflicts() []string {
	if c, is := a.targets[a.Role.Owner.Name].(dataplane.ConflictFinder); is {
		return c.Conflicts()
	}
	return nil
}

// target returns the part of the kernel that belongs to an owner.
func (a *agent) target(o dataplane.Owner) (dataplane.Target, error) {
	if t := a.targets[o.Name]; t != nil {
		return t, nil
	}
	t, err := a.Kernel.Target(o)
	if err != nil {
		return nil, err
	}
	if a.targets == nil {
		a.targets = map[string]dataplane.Target{}
	}
	a.targets[o.Name] = t
	return t, nil
}

// sync makes the node hold the plan. A failure of one part does not stop the others.
func (a *agent) sync(ctx context.Context, p role.Plan) ([]dataplane.Op, error) {
	done, err := a.syncOwn(ctx, p)
	for _, o := range p.Sweep {
		ops, sweepErr := a.syncOwner(ctx, o, dataplane.State{})
		done = append(done, ops...)
		err = errors.Join(err, sweepErr)
	}
	return done, err
}

// syncOwn makes the part of the node that is the role's own hold the plan.
func (a *agent) syncOwn(ctx context.Context, p role.Plan) ([]dataplane.Op, error) {
	a.held = nil
	done, err := a.syncOwner(ctx, a.Role.Owner, p.State)
	a.held = dataplane.Held(p.State, err)
	return done, err
}

func (a *agent) syncOwner(ctx context.Context, o dataplane.Owner, want dataplane.State) ([]dataplane.Op, error) {
	t, err := a.target(o)
	if err != nil {
		return nil, err
	}
	return dataplane.Sync(ctx, t, want)
}
