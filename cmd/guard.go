package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"subctl/cluster"
	"subctl/internal/look"
	"subctl/internal/wake"
	"subctl/internal/words"
	"subctl/policy/catalog"
)

// guard are the options of commands that change the cables of pairs of clusters. Such a
// command refuses a change that leaves a pair without a cable, or removes the encryption of
// its cable, unless the user confirms it with --force.
type guard struct {
	g                   *globals
	force, dryRun, wait bool
	timeout             time.Duration
}

func (o *guard) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	f.BoolVar(&o.force, "force", false, "change it even if pairs of clusters lose their cable or its encryption")
	o.addWait(c)
}

// addWait adds the flags --wait and --timeout.
func (o *guard) addWait(c *cobra.Command) {
	c.Flags().BoolVar(&o.wait, "wait", false, "wait until all pairs of clusters that change their cable use the new one")
	timeLimit(c, &o.timeout, 2*time.Minute, "time limit for --wait")
}

// accept returns an error if pairs of clusters lose their cable or its encryption, unless
// --force is set. With --dry-run, it reports these pairs, and the exit code is 3.
func (o *guard) accept(change catalog.Change) error {
	err := look.Losses(change)
	switch {
	case err == nil:
		return nil
	case o.force:
		o.g.progress().Warn("%v", err)
		return nil
	case o.dryRun:
		o.g.progress().Warn("%v\nwithout --force, this change is refused", err)
		return trouble()
	}
	return fmt.Errorf("%w\nnothing was changed: to change it nevertheless, add --force", err)
}

// await returns a function that waits until all pairs that change their cable use the new
// one, if --wait is set. It must be called before the change: it returns an error if no
// cluster of the kubeconfig reports the state of a pair.
func (o *guard) await(ctx context.Context, all *catalog.Catalog, change catalog.Change) (func(context.Context) error, error) {
	w := waiter{guard: o, pending: slices.DeleteFunc(slices.Clone(change.Cables), func(x catalog.CableChange) bool { return !all.Connectable(x.Pair) })}
	if !o.wait || len(w.pending) == 0 {
		return func(context.Context) error { return nil }, nil
	}
	targets, err := (&show{globals: o.g}).everyCluster()
	if err != nil {
		return nil, err
	}
	sites, errs := look.ReadAll(ctx, targets, look.ReadGateways)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for i, err := range errs {
		if err != nil {
			sites[i] = look.Site{} // its pairs may have another end
		}
	}
	var unseen []string
	for _, x := range w.pending {
		if !look.Sees(sites, x.Pair) {
			unseen = append(unseen, x.Pair.String())
		}
		for i, s := range sites {
			if look.Sees([]look.Site{s}, x.Pair) && !slices.Contains(w.targets, targets[i]) {
				w.targets = append(w.targets, targets[i])
			}
		}
	}
	if len(unseen) > 0 {
		err := fmt.Errorf("--wait cannot see %s: %s: the kubeconfig has no usable context of either cluster: add one, or omit --wait (nothing was changed)",
			words.Count(len(unseen), "pair"), words.List(unseen))
		return nil, errors.Join(append([]error{err}, errs...)...)
	}
	return w.run, nil
}

// waiter waits until pairs use their new cables.
type waiter struct {
	*guard
	targets []*look.Target
	pending []catalog.CableChange
}

// run waits. If the time limit is reached, the exit code is 3.
func (w *waiter) run(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return waited(ctx, w.reach(waiting))
}

// reach waits until ctx is done.
func (w *waiter) reach(ctx context.Context) error {
	report := w.g.progress()
	report.Step("waiting for the new cables of %s", words.Count(len(w.pending), "pair"))
	done := map[string]bool{}
	var missing []string
	for {
		sites, errs := look.ReadAll(ctx, w.targets, look.ReadGateways)
		if ctx.Err() == nil {
			missing = nil
			for _, x := range w.pending {
				why := unreached(sites, errs, x)
				if why == "" && !done[x.Pair.String()] {
					report.Done("%s: %s", x.Pair, look.CableText(x.Then))
					if note := look.OneEnd(sites, x.Pair); note != "" {
						report.Warn("%s: %s", x.Pair, note)
					}
				}
				if done[x.Pair.String()] = why == ""; why != "" {
					missing = append(missing, fmt.Sprintf("%s: %s", x.Pair, why))
				}
			}
			if len(missing) == 0 {
				return nil
			}
		}
		if wake.After(ctx, cluster.Poll) != nil {
			return w.incomplete(ctx, missing)
		}
	}
}

// unreached returns the reason why a pair does not use its new cable, or why this is unknown.
func unreached(sites []look.Site, errs []error, x catalog.CableChange) string {
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	return look.Unreached(sites, x)
}

// incomplete returns the error of a wait that ended early.
func (w *waiter) incomplete(ctx context.Context, missing []string) error {
	if len(missing) == 0 { // nothing was read
		for _, x := range w.pending {
			missing = append(missing, x.Pair.String()+": not known")
		}
	}
	return fmt.Errorf("waiting for the new cables: %w: the change is written, and takes effect without this command; not reached yet:\n  %s\nsee subctl show connections",
		cluster.Interrupted(ctx), strings.Join(missing, "\n  "))
}
