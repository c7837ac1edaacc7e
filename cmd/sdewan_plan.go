package cmd

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/sdewan/view"
)

const sdewanPlanLong = `Show what the Linux of a CNF's pods should hold, as commands.

The plan is computed locally, by the function that the CNF uses, from the rules and the
annotations of the CNF on the API server; the pods are not asked. All uplinks count as online,
except those of --offline, and the kernel as one with ESP. What only the pods know is missing: their
addresses in the network of the cluster, for one. On OpenWrt, the same rules become other commands
with the same effect.

The exit code is 3 if rules cannot be applied, which stderr describes.`

type sdewanPlan struct {
	sdewanLook
	name    string
	offline []string
	format  *printer.Flag
}

func newSdewanPlan(g *globals) *cobra.Command {
	o := &sdewanPlan{sdewanLook: sdewanLook{globals: g}}
	c := &cobra.Command{
		Use:   "plan CNF",
		Short: "Show the network configuration that a CNF should have",
		Long:  sdewanPlanLong,
		Example: `  subctl sdewan plan cnf-1
  subctl sdewan plan cnf-1 --offline wan1`,
		Args: oneArgument("CNF", &o.name),
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c)
	c.ValidArgsFunction = o.completions(purposes)
	c.Flags().StringSliceVar(&o.offline, "offline", nil, "networks whose uplinks count as offline")
	cli.Complete(c, "offline", func(ctx context.Context) ([]string, error) {
		_, v, err := o.read(ctx)
		if err != nil {
			return nil, err
		}
		return networkNames(v), nil
	})
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	return c
}

// networkNames returns the names of the networks of all CNFs, sorted.
func networkNames(v *view.View) (names []string) {
	for _, c := range v.CNFs {
		for _, n := range c.Networks() {
			name, _, _ := strings.Cut(n, "=")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (o *sdewanPlan) run(ctx context.Context) error {
	c, v, err := o.read(ctx)
	if err != nil {
		return err
	}
	v.ReadServices(ctx, c)
	cnf, err := o.cnf(v, o.name)
	if err != nil {
		return err
	}
	state, problems := v.Plan(cnf, o.offline)
	if format := o.format.Format(); format.Structured() {
		err = printer.Encode(o.Out, format, planSteps(state))
	} else {
		_, err = o.Out.Write([]byte(state.String()))
	}
	if err != nil {
		return err
	}
	return o.trouble(problems)
}
