package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/impact"
)

const clustersetCanLong = `Report whether two clusters can reach each other, and through which clustersets. The exit code
is 3 if they cannot. Then it prints what to do: if they have no clusterset in common, the
subctl clusterset add that connects the fewest other clusters, and which these are, or why there
is none that would not be refused; otherwise, why they have no cable, and how to find out more.`

// clustersetCan is the output of clusterset can.
type clustersetCan struct {
	Clusters    [2]string `json:"clusters"`
	Connected   bool      `json:"connected"`
	ClusterSets []string  `json:"clusterSets"`
	Cable       string    `json:"cable"`
}

func newClusterSetCan(g *globals) *cobra.Command {
	o := &clustersetReport{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use: "can CLUSTER CLUSTER", Short: "Report whether two clusters can reach each other", Long: clustersetCanLong,
		Example: "  subctl clusterset can east west --context hub",
		Args: func(_ *cobra.Command, args []string) error {
			if o.args = args; len(args) != 2 || args[0] == args[1] {
				return errors.New(
					"can requires the IDs of two different clusters: subctl clusterset can CLUSTER CLUSTER")
			}
			return errors.Join(submarinerv1.CheckClusterID(args[0]), submarinerv1.CheckClusterID(args[1]))
		},
		RunE: func(c *cobra.Command, _ []string) error { return forReaders(o.can(c.Context())) },
	}
	o.add(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 2 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.complete(c.Context(), typed, args, func(s *sets) []string { return s.all(c.Context()) })
	}
	return c
}

func (o *clustersetReport) can(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	state, err := broker.Look(ctx, s.client, o.namespace)
	if err != nil {
		return err
	}
	if err := errors.Join(checkMember(state, o.args[0]), checkMember(state, o.args[1])); err != nil {
		return err
	}
	out := clustersetCan{
		Clusters:    [2]string{o.args[0], o.args[1]},
		ClusterSets: []string{},
		Cable:       "none: the two clusters have no clusterset in common",
	}
	for _, set := range s.of(o.args[0]) {
		if slices.Contains(s.of(o.args[1]), set) {
			out.ClusterSets = append(out.ClusterSets, set)
		}
	}
	for _, x := range s.catalog.Connections() {
		if slices.Contains(o.args, x.Pair.X.ID) && slices.Contains(o.args, x.Pair.Y.ID) {
			out.Cable = x.Cable.String()
			out.Connected = x.Cable.Err == nil
		}
	}
	networks, err := s.networks(ctx)
	if err != nil {
		return err
	}
	conflict := ""
	for _, c := range impact.Conflicts(s.catalog, networks) {
		if slices.Contains(o.args, c.X) && slices.Contains(o.args, c.Y) && slices.Contains(o.args, c.Reaches) {
			conflict = c.String()
			out.Cable = "none: " + conflict
			out.Connected = false
		}
	}
	for _, id := range s.silent {
		if slices.Contains(o.args, id) {
			o.progress().Warn(
				"cluster %s has published nothing on the broker yet: its gateway is not running, or does not reach the broker",
				id)
		}
	}
	if err := printer.Print(o.Out, o.format.Format(), []clustersetCan{out}, []printer.Column[clustersetCan]{
		{Head: "CLUSTERS", Cell: func(r clustersetCan) string { return r.Clusters[0] + " - " + r.Clusters[1] }},
		{Head: "CLUSTERSETS", Cell: func(r clustersetCan) string { return words.List(r.ClusterSets) }},
		{Head: "CABLE", Max: 120, Cell: func(r clustersetCan) string { return r.Cable }},
	}); err != nil || out.Connected {
		return err
	}
	switch {
	case len(out.ClusterSets) == 0:
		o.suggest(s, networks)
	case conflict != "":
		o.progress().Warn(
			"to connect them, join one of them again with other networks, or both with global networks (subctl join --globalnet)")
	default:
		o.progress().Warn("to see which policy decides: %s",
			o.inContext("cable-policy explain "+o.args[0]+" "+o.args[1]+" --broker"))
	}
	return cli.Trouble()
}

// mostNamed bounds how many pairs a message names.
const mostNamed = 5

// suggest prints how to connect two clusters without a clusterset in common, and whom else that
// connects.
func (o *clustersetReport) suggest(s *sets, networks map[string]impact.Networks) {
	j, alone, refused := s.joint(o.args[0], o.args[1], networks)
	switch {
	case alone:
		o.progress().Warn("to connect them, create a clusterset for them, and add both: %s",
			o.onBroker("clusterset create SET"))
		return
	case refused != nil:
		o.progress().Warn("subctl clusterset add would refuse to connect them: %v", refused)
		o.progress().Warn(
			"to connect them, join a cluster again with other networks, or both with global networks (subctl join --globalnet); --force of subctl clusterset add connects them nevertheless, as far as that is possible")
		return
	}
	o.progress().Warn("to connect them: %s",
		o.onBroker("clusterset add "+strings.Join(append([]string{j.set}, j.add...), " ")))
	if n := len(j.also); n > 0 {
		named := strings.Join(j.also[:min(n, mostNamed)], ", ")
		if n > mostNamed {
			named += fmt.Sprintf(" and %d more", n-mostNamed)
		}
		o.progress().Warn(
			"this also connects %s (--dry-run prints all pairs); a new clusterset would connect only these two: subctl clusterset create SET",
			named)
	}
}
