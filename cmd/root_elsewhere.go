package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
)

// elsewhere are commands that people type and that do not exist, with what to use: the commands of
// Submariner's subctl, and other names for what this one does.
var elsewhere = map[string]string{
	"subctl diagnose": "subctl show all reports the problems of all clusters, with remedies (docs/troubleshooting.md)",
	"subctl gather": "for a report of a problem, attach the output of subctl show all -o yaml, subctl show plan " +
		"NODE, and kubectl logs -n submariner-operator --all-containers --prefix -l app=submariner-gateway " +
		"(docs/troubleshooting.md)",
	"subctl verify": "subctl show connections --wait waits until all gateways are connected; then connect from a " +
		"pod to a Service of another cluster (docs/troubleshooting.md)",
	"subctl benchmark": "run iperf3 in a pod of one cluster, and connect to it from a pod of another one",
	"subctl cloud": "open the ports of docs/numbers.md between the gateways in the firewall of your cloud, and " +
		"choose gateway nodes with subctl join --gateways",
	"subctl status": "use subctl show all",

	"subctl show policies":       "use subctl cable-policy list",
	"subctl show cable-policies": "use subctl cable-policy list",
	"subctl show status":         "use subctl show all",
	"subctl gateway list":        "use subctl show gateways",
	"subctl gateway show":        "use subctl show gateways",
}

// noSuchCommand is the Args of a command that only groups others. It tells what to use instead of a
// command that people expect here.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		path := c.CommandPath() + " " + args[0]
		if use := elsewhere[path]; use != "" {
			return fmt.Errorf("%s is not in this version: %s", path, use)
		}
	}
	return cli.NoSuchCommand(c, args)
}

// flagError is cli.FlagError. What is wrong with a command that does not exist are not its flags.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() {
		if missing := noSuchCommand(c, c.Flags().Args()); missing != nil {
			return missing
		}
	}
	return cli.FlagError(c, err)
}
