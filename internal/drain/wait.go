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

// Goal is what Wait waits for, as messages name it.
type Goal string

// The goals.
const (
	InService Goal = "in service"
	IsDrained Goal = "drained"
	Works     Goal = "a gateway" // that reports, with a connection if it is to have any
)

// Wait waits until gateways are drained, or in service. If limit is reached, the exit code is 3.
func Wait(
	ctx context.Context, t *look.Target, say *progress.Reporter, names []string, goal Goal, limit time.Duration,
) error {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	what := string(goal)
	say.Step("waiting until %s %s %s, for at most %s", words.List(names), areOrIs(names), what, words.Duration(limit))
	seen := map[string]awaited{}
	for {
		sites, errs := look.ReadAll(waiting, []*look.Target{t}, Reads...)
		var reasons []string
		for _, name := range names {
			if waiting.Err() == nil { // else it may be half of a read
				now := observe(sites[0], errs[0], name, goal)
				now.tell(say, seen[name], what)
				seen[name] = now
			}
			if a, ok := seen[name]; !ok {
				reasons = append(reasons, fmt.Sprintf("gateway %s: its report was not read", name))
			} else if a.why != "" {
				reasons = append(reasons, strings.Join(append([]string{a.text()}, a.flows...), "\n    "))
			}
		}
		if len(reasons) == 0 && waiting.Err() == nil {
			return nil
		}
		if wake.After(waiting, cluster.Poll) != nil {
			err := fmt.Errorf("waiting until %s %s %s: %w: the nodes are changed, and the gateways follow without "+
				"this command; not reached yet:\n  %s\nsee subctl show gateways",
				words.List(names), areOrIs(names), what, cluster.Interrupted(waiting), strings.Join(reasons, "\n  "))
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

// awaited is what a gateway still does before it is drained, or in service.
type awaited struct {
	name   string
	why    string   // empty if it is
	flows  []string // the connections that it still has: see listed
	listed int      // the length of flows when they were last printed
}

// observe returns what a gateway still does. err is the error of reading the cluster.
func observe(s look.Site, err error, name string, goal Goal) awaited {
	if err != nil {
		return awaited{name: name, why: err.Error()}
	}
	a := awaited{name: name, why: printer.Clean(pending(s, name, goal))}
	if gw := report(s, name); goal == IsDrained && gw != nil && gw.Status.Drain == submarinerv1.Draining &&
		look.Stale(*gw, s.Now) == "" {
		a.flows = listed(gw)
	}
	return a
}

// text describes what the gateway still does, without its connections.
func (a awaited) text() string {
	text := fmt.Sprintf("gateway %s: %s", a.name, a.why)
	if len(a.flows) > 0 {
		text += ":"
	}
	return text
}

// tell prints what has changed since was, the zero awaited at first. The connections are listed at
// first, and again each time that half of the list is gone.
func (a *awaited) tell(say *progress.Reporter, was awaited, what string) {
	a.listed = was.listed
	switch {
	case a.why == "" && (was.name == "" || was.why != ""):
		say.Done("gateway %s is %s", a.name, what)
	case a.why == was.why:
	case len(a.flows) > 0 && (a.listed == 0 || 2*len(a.flows) <= a.listed):
		say.List(a.text(), a.flows)
		a.listed = len(a.flows)
	default:
		say.Step("gateway %s: %s", a.name, a.why)
	}
}

// pending returns what a gateway still does before it is drained, or in service; empty if it is.
func pending(s look.Site, name string, goal Goal) string {
	gw := report(s, name)
	drained := goal == IsDrained
	switch {
	case gw == nil:
		return "no report of its agent: see kubectl -n " + submarinerv1.OperatorNamespace + " get pods -o wide"
	case look.Stale(*gw, s.Now) != "":
		return look.Stale(*gw, s.Now)
	case drained && gw.Status.Drain == submarinerv1.Drained && !s.Joined():
		return ""
	case drained && gw.Status.Drain == submarinerv1.Drained:
		if single := !s.Submariner.Spec.MultiActiveGatewayEnabled; single &&
			gw.Status.HAStatus == submarinerv1.HAStatusActive &&
			last(s, []string{name}) == nil {
			return "leaving its role to another gateway"
		}
		return ""
	case drained && gw.Status.Drain == "":
		return "its agent has not followed yet"
	case drained:
		return left(gw)
	case gw.Status.Drain != "":
		return "its agent has not followed yet"
	case goal == Works:
		return unconnected(gw)
	}
	return ""
}

// unconnected returns why a gateway does not carry traffic yet; empty if it does, or as a standby
// can.
func unconnected(gw *submarinerv1.Gateway) string {
	up := 0
	for _, c := range gw.Status.Connections {
		if c.Status == submarinerv1.Connected {
			up++
		}
	}
	switch all := len(gw.Status.Connections); {
	case gw.Status.StatusFailure != "":
		return gw.Status.StatusFailure
	case all > 0 && up == 0:
		return fmt.Sprintf("0 connections out of %d are established", all)
	}
	return ""
}

// left describes how many flows a gateway still has.
func left(gw *submarinerv1.Gateway) string {
	since := ""
	if at := gw.Status.DrainingSince; at != nil {
		since = " since " + at.UTC().Format(time.TimeOnly) + " UTC"
	}
	switch n := gw.Status.Flows; {
	case n == nil:
		return "draining" + since + "; its connections have not been counted yet"
	case *n == 0:
		return "draining" + since + "; it has no connections any more"
	default:
		return fmt.Sprintf("draining%s; %s left", since, words.Count(int(*n), "connection"))
	}
}
