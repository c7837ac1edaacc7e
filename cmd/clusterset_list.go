package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
)

// clustersetRow is a clusterset, as clusterset list and show print it.
type clustersetRow struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Members     []string          `json:"members"`
	Connections []clustersetCable `json:"connections"`
	Policies    []string          `json:"policies"`
}

// connected returns the number of pairs that are connected.
func (r clustersetRow) connected() (n int) {
	for _, x := range r.Connections {
		if x.Connected {
			n++
		}
	}
	return n
}

// clustersetCable is a pair of members that are connected, or why they are not.
type clustersetCable struct {
	Clusters  [2]string `json:"clusters"`
	Connected bool      `json:"connected"`
	Cable     string    `json:"cable"`
}

type clustersetList struct {
	setsFlags
	names  []string
	format *printer.Flag
}

func newClusterSetList(g *globals) *cobra.Command {
	o := &clustersetList{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use: "list", Short: "List the clustersets", Long: "List the clustersets of the broker, with their members, connections and cable policies.",
		Example: "  subctl clusterset list --context hub", Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.list(c.Context()) },
	}
	o.add(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

func newClusterSetShow(g *globals) *cobra.Command {
	o := &clustersetList{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use: "show SET...", Short: "Show the connections in clustersets", Long: "Show which clusters of clustersets are connected, and by which cables, as the cable policies decide.",
		Example: "  subctl clusterset show hub-a --context hub",
		Args: func(_ *cobra.Command, args []string) error {
			if o.names = args; len(args) == 0 {
				return errors.New("show requires the names of clustersets: subctl clusterset show SET")
			}
			var errs []error
			for _, name := range args {
				errs = append(errs, checkSetArgument(name))
			}
			return errors.Join(errs...)
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.show(c.Context()) },
	}
	o.add(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = o.completeSets
	return c
}

func (o *clustersetList) list(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	return printer.Print(o.Out, o.format.Format(), s.rows(s.sets), []printer.Column[clustersetRow]{
		{Head: "CLUSTERSET", Cell: func(r clustersetRow) string { return r.Name }},
		{Head: "MEMBERS", Max: 60, Cell: func(r clustersetRow) string { return words.List(r.Members) }},
		{Head: "CONNECTIONS", Cell: func(r clustersetRow) string { return fmt.Sprint(r.connected()) }},
		{Head: "POLICIES", Max: 60, Cell: func(r clustersetRow) string { return words.List(r.Policies) }},
	})
}

func (o *clustersetList) show(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	var chosen []broker.ClusterSet
	var errs []error
	for _, name := range o.names {
		set, err := s.find(name)
		chosen, errs = append(chosen, set), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	rows := s.rows(chosen)
	if o.format.Format().Structured() {
		return printer.Print(o.Out, o.format.Format(), rows, []printer.Column[clustersetRow]{})
	}
	for _, row := range rows {
		o.progress().Done("clusterset %s: %s", row.Name, words.Count(len(row.Members), "member"))
		err := printer.Print(o.Out, printer.Table, row.Connections, []printer.Column[clustersetCable]{
			{Head: "CLUSTERSET", Cell: func(clustersetCable) string { return row.Name }},
			{Head: "CLUSTERS", Cell: func(x clustersetCable) string { return x.Clusters[0] + " - " + x.Clusters[1] }},
			{Head: "CABLE", Max: 80, Cell: func(x clustersetCable) string { return x.Cable }},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rows returns what is printed of clustersets.
func (s *sets) rows(of []broker.ClusterSet) []clustersetRow {
	out := []clustersetRow{}
	for _, set := range of {
		row := clustersetRow{Name: set.Name, Namespace: set.Namespace, Members: append([]string{}, set.Members...), Connections: []clustersetCable{}, Policies: []string{}}
		for _, x := range s.catalog.Connections() {
			if slices.Contains(x.Pair.X.Sets, set.Name) && slices.Contains(x.Pair.Y.Sets, set.Name) {
				row.Connections = append(row.Connections, clustersetCable{[2]string{x.Pair.X.ID, x.Pair.Y.ID}, x.Then.Err == nil, look.CableText(x.Then)})
			}
		}
		for _, p := range s.catalog.Policies {
			if slices.Contains(p.ClusterSets(), set.Name) {
				row.Policies = append(row.Policies, p.SharedName())
			}
		}
		out = append(out, row)
	}
	return out
}

const clustersetCanLong = `Report whether two clusters can reach each other, and through which clustersets. The exit code
is 3 if they cannot; the command that connects them is printed then.`

// clustersetCan is what clusterset can prints.
type clustersetCan struct {
	Clusters    [2]string `json:"clusters"`
	Connected   bool      `json:"connected"`
	ClusterSets []string  `json:"clusterSets"`
	Cable       string    `json:"cable"`
}

func newClusterSetCan(g *globals) *cobra.Command {
	o := &clustersetList{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use: "can CLUSTER CLUSTER", Short: "Report whether two clusters can reach each other", Long: clustersetCanLong,
		Example: "  subctl clusterset can east west --context hub",
		Args: func(_ *cobra.Command, args []string) error {
			if o.names = args; len(args) != 2 || args[0] == args[1] {
				return errors.New("can requires the IDs of two clusters: subctl clusterset can CLUSTER CLUSTER")
			}
			return errors.Join(submarinerv1.CheckClusterID(args[0]), submarinerv1.CheckClusterID(args[1]))
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.can(c.Context()) },
	}
	o.add(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 2 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.complete(c.Context(), typed, args, (*sets).members)
	}
	return c
}

func (o *clustersetList) can(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	state, err := broker.Look(ctx, s.client, o.namespace)
	if err != nil {
		return err
	}
	if err := errors.Join(s.known(state, o.names[0]), s.known(state, o.names[1])); err != nil {
		return err
	}
	out := clustersetCan{Clusters: [2]string{o.names[0], o.names[1]}, ClusterSets: []string{}, Cable: "none: the two clusters have no clusterset in common"}
	for _, set := range s.of(o.names[0]) {
		if slices.Contains(s.of(o.names[1]), set) {
			out.ClusterSets = append(out.ClusterSets, set)
		}
	}
	for _, x := range s.catalog.Connections() {
		if slices.Contains(o.names, x.Pair.X.ID) && slices.Contains(o.names, x.Pair.Y.ID) {
			out.Cable, out.Connected = look.CableText(x.Then), x.Then.Err == nil
		}
	}
	if err := printer.Print(o.Out, o.format.Format(), []clustersetCan{out}, []printer.Column[clustersetCan]{
		{Head: "CLUSTERS", Cell: func(r clustersetCan) string { return r.Clusters[0] + " - " + r.Clusters[1] }},
		{Head: "CLUSTERSETS", Cell: func(r clustersetCan) string { return words.List(r.ClusterSets) }},
		{Head: "CABLE", Max: 120, Cell: func(r clustersetCan) string { return r.Cable }},
	}); err != nil || out.Connected {
		return err
	}
	if len(out.ClusterSets) == 0 {
		in := s.of(o.names[0])
		if len(in) == 0 {
			in = s.names()
		}
		o.progress().Warn("to connect them: subctl clusterset add %s %s", in[0], o.names[1])
	} else {
		o.progress().Warn("subctl cable-policy explain %s %s says which policy decides", o.names[0], o.names[1])
	}
	return cli.Trouble()
}
