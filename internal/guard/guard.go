// Package guard protects the cables of pairs of clusters: a command that changes them refuses
// a change that leaves a pair without a cable, or removes the encryption of its cable, unless
// the user confirms it with --force. Then the command waits for the new cables, unless --wait=false
// is set.
package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/progress"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

// Guard has the flags of such a command.
type Guard struct {
	Force, DryRun, Wait bool
	Timeout             time.Duration

	messages io.Writer
	targets  func() ([]*look.Target, error)
}

// New returns a Guard that reports to messages, and waits for the clusters that targets returns.
func New(messages io.Writer, targets func() ([]*look.Target, error)) Guard {
	return Guard{messages: messages, targets: targets}
}

// AddFlags adds all flags.
func (o *Guard) AddFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.DryRun, "dry-run", false, "print what would change, without changing it")
	f.BoolVar(&o.Force, "force", false, "change it even if pairs of clusters lose their cable or its encryption")
	o.AddWait(c)
}

// AddWait adds the flags --wait and --timeout.
func (o *Guard) AddWait(c *cobra.Command) {
	c.Flags().BoolVar(&o.Wait, "wait", true, "wait until all pairs of clusters that change their cable use the new one")
	cli.TimeLimit(c, &o.Timeout, 2*time.Minute, "time limit for --wait")
}

func (o *Guard) progress() *progress.Reporter { return progress.New(o.messages) }

// Accept returns an error if clusters lose something by a change, unless
// --force is set. With --dry-run, it reports what they lose, and the exit code is 3.
func (o *Guard) Accept(change impact.Change) error {
	return o.Confirm(change.Refusal(), "this change is refused", "to change it nevertheless")
}

// Confirm returns a reason not to do something, unless it is nil or --force is set; goOn is the
// beginning of the remedy. With --dry-run, Confirm reports the reason, and the exit code is 3;
// refused tells what happens without --force.
func (o *Guard) Confirm(reason error, refused, goOn string) error {
	switch {
	case reason == nil:
		return nil
	case o.Force:
		o.progress().Warn("%v", reason)
		return nil
	case o.DryRun:
		o.progress().Warn("%v\nwithout --force, %s", reason, refused)
		return cli.Trouble()
	}
	return fmt.Errorf("%w\nnothing was changed: %s, add --force", reason, goOn)
}

// Await returns a function that waits until all pairs that change their cable use the new one,
// unless --wait=false is set. It must be called before the change. It reports the pairs for which
// it does not wait, since no cluster of the kubeconfig sees them. A user who may not read a cluster
// that might see them gets an error.
func (o *Guard) Await(
	ctx context.Context,
	all *catalog.Catalog,
	change impact.Change,
) (func(context.Context) error, error) {
	w := waiter{
		Guard: o,
		pending: slices.DeleteFunc(slices.Clone(change.Cables),
			func(x impact.CableChange) bool { return !all.Connectable(x.Pair) }),
	}
	switch {
	case len(w.pending) == 0:
		return done, nil
	case !o.Wait:
		return o.hint, nil
	}
	targets, err := o.targets()
	if err != nil {
		return nil, err
	}
	sites, errs := look.ReadAll(ctx, targets, look.ReadGateways)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w.unread = errors.Join(errs...)
	for i, err := range errs {
		if err != nil {
			sites[i] = look.Site{} // its pairs may have another end
		}
	}
	w.pending = slices.DeleteFunc(w.pending, func(x impact.CableChange) bool {
		for i, s := range sites {
			if look.Sees([]look.Site{s}, x.Pair) && !slices.Contains(w.targets, targets[i]) {
				w.targets = append(w.targets, targets[i])
			}
		}
		if look.Sees(sites, x.Pair) {
			return false
		}
		w.unseen = append(w.unseen, x.Pair.String())
		return true
	})
	if len(w.unseen) > 0 && slices.ContainsFunc(errs, apierrors.IsForbidden) {
		return nil, fmt.Errorf("%w\nnothing was changed: to change it without waiting for the new cables, add "+
			"--wait=false", w.unread)
	}
	return w.run, nil
}

// done waits for nothing.
func done(context.Context) error { return nil }

// hint waits for nothing, and names the command that waits.
func (o *Guard) hint(context.Context) error {
	o.progress().Note("the gateways follow: to wait for them, run subctl show connections --wait")
	return nil
}
