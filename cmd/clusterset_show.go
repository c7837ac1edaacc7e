package cmd

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/words"
)

func newClusterSetShow(g *globals) *cobra.Command {
	o := &clustersetReport{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use: "show SET...", Short: "Show the connections in clustersets", Long: "Show which clusters of clustersets are connected, and by which cables, as the cable policies decide.",
		Example: "  subctl clusterset show hub-a --context hub",
		Args: func(_ *cobra.Command, args []string) error {
			if o.args = args; len(args) == 0 {
				return errors.New("show requires the names of clustersets: subctl clusterset show SET")
			}
			var errs []error
			for _, name := range args {
				errs = append(errs, checkSetArgument(name))
			}
			return errors.Join(errs...)
		},
		RunE: func(c *cobra.Command, _ []string) error { return forReaders(o.show(c.Context())) },
	}
	o.add(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = o.completeSets
	return c
}

func (o *clustersetReport) show(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	var chosen []broker.ClusterSet
	var errs []error
	for i, name := range o.args {
		if slices.Contains(o.args[:i], name) {
			continue
		}
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
