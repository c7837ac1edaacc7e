package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/wake"
	"subctl/internal/words"
	"subctl/policy/impact"
)

// waiter waits until pairs use their new cables.
type waiter struct {
	*Guard
	targets []*look.Target
	pending []impact.CableChange
	unseen  []string // pairs that change their cable and that none of the targets sees
	unread  error    // why clusters of the kubeconfig could not be read
}

// run waits. If the time limit is reached, the exit code is 3.
func (w *waiter) run(ctx context.Context) error {
	if n := len(w.unseen); n > 0 {
		why := ""
		if w.unread != nil {
			why = fmt.Sprintf("\nnot readable: %v", w.unread)
		}
		w.progress().Warn("not waiting for %s, as the kubeconfig has no usable context of either cluster: %s%s",
			words.Count(n, "pair"), words.List(w.unseen), why)
	}
	if len(w.pending) == 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	return cli.Waited(ctx, w.reach(waiting))
}

// reach waits until ctx is done.
func (w *waiter) reach(ctx context.Context) error {
	report := w.progress()
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
					report.Done("%s: %s", x.Pair, x.Then)
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
func unreached(sites []look.Site, errs []error, x impact.CableChange) string {
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	return look.Unreached(sites, x.Connection())
}

// incomplete returns the error of a wait that ended early.
func (w *waiter) incomplete(ctx context.Context, missing []string) error {
	if len(missing) == 0 { // nothing was read
		for _, x := range w.pending {
			missing = append(missing, x.Pair.String()+": not known")
		}
	}
	return fmt.Errorf(
		"waiting for the new cables: %w: the change is written, and takes effect without this command; not reached yet:\n  %s\nsee subctl show connections",
		cluster.Interrupted(ctx), strings.Join(missing, "\n  "))
}
