package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/progress"
	"subctl/internal/wake"
	"subctl/internal/words"
)

// Wait waits until gateways are drained, or in service. If limit is reached, the exit code is 3.
func Wait(ctx context.Context, t *look.Target, say *progress.Reporter, names []string, drained bool, limit time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	what := "in service"
	if drained {
		what = "drained"
	}
	say.Step("waiting until %s %s %s, for at most %v", words.List(names), areOrIs(names), what, limit)
	last := map[string]string{} // what each gateway waits for
	for {
		sites, errs := look.ReadAll(waiting, []*look.Target{t}, Reads...)
		pending := []string{}
		for _, name := range names {
			why := printer.Clean(Pending(sites[0], name, drained))
			if errs[0] != nil {
				why = errs[0].Error()
			}
			if waiting.Err() != nil {
				why = last[name] // it may be half of a read
			}
			if why != last[name] && why != "" {
				say.Step("gateway %s: %s", name, why)
			}
			if was, seen := last[name]; why == "" && (!seen || was != "") && waiting.Err() == nil {
				say.Done("gateway %s is %s", name, what)
			}
			if last[name] = why; why != "" {
				pending = append(pending, fmt.Sprintf("gateway %s: %s", name, why))
			}
		}
		if len(pending) == 0 && waiting.Err() == nil {
			return nil
		}
		if wake.After(waiting, cluster.Poll) != nil {
			err := fmt.Errorf("waiting until %s %s %s: %w: the nodes are annotated, and the gateways follow without this command; not reached yet:\n  %s\nsee subctl show gateways",
				words.List(names), areOrIs(names), what, cluster.Interrupted(waiting), strings.Join(pending, "\n  "))
			if ctx.Err() != nil {
				err = errors.New(strings.Replace(err.Error(), "out of time", "interrupted", 1))
			}
			return cli.Waited(ctx, err)
		}
	}
}

func areOrIs(names []string) string {
	if len(names) == 1 {
		return "is"
	}
	return "are"
}

// shownFlows is the maximum number of flows in a message.
const shownFlows = 3

// Pending returns what a gateway still does before it is drained, or in service; empty if it is.
func Pending(s look.Site, name string, drained bool) string {
	gw := report(s, name)
	switch {
	case gw == nil:
		return "no report of its agent: see kubectl -n " + submarinerv1.OperatorNamespace + " get pods -o wide"
	case look.Stale(*gw, s.Now) != "":
		return look.Stale(*gw, s.Now)
	case drained && gw.Status.Drain == submarinerv1.Drained && !s.Joined():
		return ""
	case drained && gw.Status.Drain == submarinerv1.Drained:
		if single := !s.Submariner.Spec.MultiActiveGatewayEnabled; single && gw.Status.HAStatus == submarinerv1.HAStatusActive && last(s, []string{name}) == nil {
			return "leaving its role to another gateway"
		}
		return ""
	case drained && gw.Status.Drain == "":
		return "its agent has not followed yet"
	case drained:
		return left(gw)
	case gw.Status.Drain != "":
		return "its agent has not followed yet"
	}
	return ""
}

// left describes the flows that a gateway still has.
func left(gw *submarinerv1.Gateway) string {
	since := ""
	if at := gw.Status.DrainingSince; at != nil {
		since = " since " + at.UTC().Format(time.TimeOnly) + " UTC"
	}
	n := gw.Status.Flows
	switch {
	case n == nil:
		return "draining" + since + "; its connections have not been counted yet"
	case *n == 0:
		return "draining" + since + "; it has no connections any more"
	}
	some := gw.Status.SomeFlows[:min(len(gw.Status.SomeFlows), shownFlows)]
	text := fmt.Sprintf("draining%s; %s left", since, words.Count(int(*n), "connection"))
	if len(some) > 0 {
		text += ": " + strings.Join(some, ", ")
	}
	if more := int(*n) - len(some); len(some) > 0 && more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
