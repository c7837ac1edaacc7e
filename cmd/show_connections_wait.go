package cmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/progress"
	"subctl/internal/wake"
)

// waitTimeout is the default of --timeout: longer than a gateway takes to start and connect.
const waitTimeout = 2 * time.Minute

// addWait gives the command for connections the flags --wait and --timeout.
func (s *show) addWait(c *cobra.Command) {
	c.Flags().BoolVar(&s.wait, "wait", false, "wait until every gateway of every known cluster is connected, by the "+
		"cables that policies, labels and clustersets decide on now")
	cli.TimeLimit(c, &s.timeout, waitTimeout, "time limit of --wait")
	c.Example += "\n  subctl show connections --wait --timeout 5m"
	cli.Before(c, func() error {
		if s.wait && s.watch {
			return errors.New("--wait and --watch both decide when the command ends: set only one of them")
		}
		return nil
	})
}

// await shows p once it has no problem, or when the time is out. Meanwhile it reports on
// stderr what it waits for, whenever that changes.
func (s *show) await(ctx context.Context, p look.Panel) error {
	targets, err := s.Targets(s.contexts)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.progress().Step("waiting until all gateways are connected, for at most %v", s.timeout)
	var last look.Picture
	for {
		// First, as a gateway's report may be of before a decision.
		sites, errs := look.ReadAll(limited, targets, look.ReadDecisions, look.ReadGateways)
		now := p.Look(limited, targets, s.format.Format())
		if now.Err == nil && limited.Err() == nil {
			now = undecided(now, sites, errors.Join(errs...))
		}
		if now.Err == nil {
			if note := look.Unchecked(sites); note != "" {
				s.progress().Warn("%s", note)
			}
			s.progress().Done("all gateways are connected")
			return s.print(now)
		}
		if limited.Err() == nil { // otherwise it may be half of a read
			if now.Notes != last.Notes || fmt.Sprint(now.Err) != fmt.Sprint(last.Err) {
				s.sayPending(now)
			}
			last = now
		}
		if wake.After(limited, cluster.Poll) == nil {
			continue
		}
		if ctx.Err() != nil {
			return s.interrupted(ctx, last)
		}
		s.progress().Fail("not all gateways are connected after %v", s.timeout)
		last.Notes = "" // reported already
		if last.Err == nil {
			last.Err = errors.New("no cluster answered in time: specify a longer --timeout")
		}
		return s.print(last)
	}
}

// undecided adds to a picture without problems what is not yet as the clusters of the sites decide;
// unread is the error of reading the sites.
func undecided(p look.Picture, sites []look.Site, unread error) look.Picture {
	var notes bytes.Buffer
	say := progress.New(&notes)
	p.Err = unread
	for _, text := range look.Undecided(sites) {
		say.Warn("%s", text)
		p.Err = cmp.Or(p.Err, look.ErrTrouble)
	}
	p.Notes += notes.String()
	return p
}

// interrupted shows what await read last, and returns the error of a command that a person
// interrupted.
func (s *show) interrupted(ctx context.Context, last look.Picture) error {
	why := cluster.Interrupted(ctx)
	if last.Err == nil {
		s.progress().Fail("%v: no cluster has answered yet", why)
	} else {
		s.progress().Fail("%v: so far, not all gateways are connected:", why)
		s.sayPending(last)
	}
	if _, err := io.WriteString(s.Out, last.Data); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return fmt.Errorf("waiting until all gateways are connected: %w", why)
}

// sayPending reports what await waits for.
func (s *show) sayPending(p look.Picture) {
	fmt.Fprint(s.ErrOut, p.Notes)
	if !errors.Is(p.Err, look.ErrTrouble) {
		s.progress().Warn("%v", p.Err)
	}
}

// awaitedTable returns the table of connections, whose problems include the gateways of other
// clusters to which there is no connection yet.
func awaitedTable() look.Section {
	v := connectionsView()
	v.Reads = append(v.Reads, look.ReadMembers)
	v.Trouble = func(s look.Site, rows []connectionRow) []string {
		return append(connectionTrouble(s, rows), unconnected(s)...)
	}
	return v.Section()
}

// unconnected returns a line for each gateway of another cluster to which an active gateway
// has no connection, as far as it reports all. Some drivers do not connect to standbys.
func unconnected(s look.Site) []string {
	if s.Members == nil {
		return nil
	}
	var out []string
	for _, c := range s.Members.Catalog.Clusters {
		if c.ID == s.Members.Keeper {
			continue
		}
		for _, e := range s.Members.Endpoints[c.ID] {
			if isStandby(e) {
				continue
			}
			for _, gw := range s.Gateways {
				complete := gw.Status.HAStatus == submarinerv1.HAStatusActive && gw.Status.ConnectionsOmitted == 0
				if complete && !slices.ContainsFunc(gw.Status.Connections, func(have submarinerv1.Connection) bool {
					return have.Endpoint.CableName == e.CableName
				}) {
					out = append(out,
						fmt.Sprintf("gateway %s to %s of cluster %q: no connection yet", gw.Name, e.Hostname, c.ID))
				}
			}
		}
	}
	return out
}
