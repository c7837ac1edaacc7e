package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/sdewan/view"
)

const sdewanShowLong = `Show CNFs and rules.

The exit code is 0 if there is no problem, 1 if the cluster could not be read, and 3 if
something is not in sync, a CNF does not work, or no pod of the controller is ready, which
stderr describes.`

func newSdewanShow(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show CNFs and rules, and whether they are in sync",
		Long:  sdewanShowLong,
		Args:  cli.NoSuchCommand,
	}
	c.AddCommand(
		newSdewanTable(g, "rules", "Show rules, and whether all pods of their CNFs have them",
			"A rule is in sync if all pods of its CNF have its current version. READY PODS are the pods of the\nCNF that are ready. Of a rule that is in sync, they all have it; otherwise the reason on stderr names\na pod that does not. The statuses of rules do not tell it of each pod.\n\nThe exit code is 3 if a rule is not in sync, or no pod of the controller is ready; stderr has the reason.",
			(*sdewanTable).rules),
		newSdewanTable(g, "cnfs", "Show CNFs, their pods, networks and rules",
			"The exit code is 3 if pods of a CNF are not ready, rules are not in sync, or no pod of the controller is ready.",
			(*sdewanTable).cnfs),
		newSdewanTable(g, "status", "Show uplinks, tunnels, connections and leases of CNFs",
			"The controller asks the pods of each CNF every 30 seconds, and a new pod as soon as it has its\nrules, and 5 seconds later. READ is when the answer changed last: if only counters and\nconnections change, they are up to 5 minutes old.\n\nWith -o wide, the table also has the states of IKE, the virtual IPs that a pod has from other ends of\ntunnels, the leases (virtual IPs that others have from it), and the numbers of routes and\nneighbours. With -o json, the output has everything that pods have answered, up to 32 KiB of each.\n\nThe exit code is 3 if a pod did not answer or has not reported yet, an uplink is offline, a tunnel\nis down, unless it waits for the other end or for traffic, a part of the configuration has no effect, or no pod of the controller is ready.",
			(*sdewanTable).status),
	)
	return c
}

// sdewanTable are the options of a table of sdewan show.
type sdewanTable struct {
	sdewanLook
	format *printer.Flag
}

func newSdewanTable(
	g *globals,
	noun, short, long string,
	show func(*sdewanTable, context.Context) error,
) *cobra.Command {
	o := &sdewanTable{sdewanLook: sdewanLook{globals: g}}
	c := &cobra.Command{
		Use: noun, Short: short, Long: short + ".\n\n" + long,
		Example: fmt.Sprintf("  subctl sdewan show %[1]s\n  subctl sdewan show %[1]s -A -o json", noun),
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return show(o, c.Context()) },
	}
	o.addFlags(c)
	c.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "show all namespaces")
	cli.Before(c, func() error {
		if o.all && c.Flags().Changed("namespace") {
			return fmt.Errorf("--namespace and --all-namespaces both choose the namespaces: set only one of them")
		}
		return nil
	})
	o.format = cli.Output(c, printer.Table, printer.Wide, printer.JSON, printer.YAML)
	return c
}

// controllerProblems returns what is wrong with the controller, without which the statuses become
// old.
func controllerProblems(ctx context.Context, c client.Reader) ([]string, error) {
	problem, err := view.ControllerProblem(ctx, c)
	if problem == "" {
		return nil, err
	}
	return []string{problem}, nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
