package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/printer"
)

func newClusterSetShow(g *globals) *cobra.Command {
	o := &clustersetReport{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use:     "show SET...",
		Short:   "Show the members of clustersets and their connections",
		Long:    "Show the members and the cable policies of clustersets, which members are connected, and by which cables, as the\ncable policies decide.",
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
		chosen = append(chosen, set)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	rows := s.rows(chosen)
	if err := o.print(rows); err != nil || o.format.Format().Structured() {
		return err
	}
	return printCables(o.Out, rows)
}

// printCables prints the connections in clustersets, after an empty line, if there are any.
func printCables(out io.Writer, rows []clustersetRow) error {
	type cable struct {
		set string
		clustersetCable
	}
	var cables []cable
	for _, row := range rows {
		for _, x := range row.Connections {
			cables = append(cables, cable{row.Name, x})
		}
	}
	if len(cables) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return printer.Print(out, printer.Table, cables, []printer.Column[cable]{
		{Head: "CLUSTERSET", Cell: func(x cable) string { return x.set }},
		{Head: "CLUSTERS", Cell: func(x cable) string { return x.Clusters[0] + " - " + x.Clusters[1] }},
		{Head: "CABLE", Max: 80, Cell: func(x cable) string { return x.Cable }},
	})
}
