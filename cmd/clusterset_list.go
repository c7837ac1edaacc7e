package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"subctl/broker"
	"subctl/internal/cli"
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

// clustersetReport are the options of clusterset list, show and can, which change nothing.
type clustersetReport struct {
	setsFlags
	args   []string // of show: clustersets; of can: two clusters
	format *printer.Flag
}

func newClusterSetList(g *globals) *cobra.Command {
	o := &clustersetReport{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the clustersets",
		Long:    "List the clustersets of the broker, with their members, connections and cable policies.",
		Example: "  subctl clusterset list --context hub",
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return forReaders(o.list(c.Context())) },
	}
	o.add(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

func (o *clustersetReport) list(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	return o.print(s.rows(s.sets))
}

// print prints clustersets.
func (o *clustersetReport) print(rows []clustersetRow) error {
	return printer.Print(o.Out, o.format.Format(), rows, []printer.Column[clustersetRow]{
		{Head: "CLUSTERSET", Cell: func(r clustersetRow) string { return r.Name }},
		{Head: "MEMBERS", Max: 60, Cell: func(r clustersetRow) string { return words.List(r.Members) }},
		{Head: "CONNECTIONS", Cell: func(r clustersetRow) string { return fmt.Sprint(r.connected()) }},
		{Head: "POLICIES", Max: 60, Cell: func(r clustersetRow) string { return words.List(r.Policies) }},
	})
}

// rows returns what is printed of clustersets.
func (s *sets) rows(of []broker.ClusterSet) []clustersetRow {
	out := []clustersetRow{}
	at := map[string]int{}
	for i, set := range of {
		out = append(
			out,
			clustersetRow{
				Name:        set.Name,
				Namespace:   set.Namespace,
				Members:     append([]string{}, set.Members...),
				Connections: []clustersetCable{},
				Policies:    []string{},
			},
		)
		at[set.Name] = i
	}
	for _, x := range s.catalog.Connections() { // once: there may be 1,000 clustersets with a connection each
		cable := clustersetCable{[2]string{x.Pair.X.ID, x.Pair.Y.ID}, x.Cable.Err == nil, x.Cable.String()}
		for _, set := range x.Pair.X.Sets {
			if i, ok := at[set]; ok && slices.Contains(x.Pair.Y.Sets, set) {
				out[i].Connections = append(out[i].Connections, cable)
			}
		}
	}
	for _, p := range s.catalog.Policies {
		if s.catalog.Refused(p) != "" {
			continue // subctl cable-policy list has it, and the reason
		}
		for _, set := range p.ClusterSets() {
			if i, ok := at[set]; ok {
				out[i].Policies = append(out[i].Policies, p.SharedName())
			}
		}
	}
	return out
}
