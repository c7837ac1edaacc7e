package cmd

import (
	"fmt"
	"path/filepath"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/version"
)

// components are the names by which upstream's tools run the programs of the agents, with the
// components that these report. In the image they are links to subctl.
var components = map[string]string{
	"submariner-gateway":     cluster.GatewayName,
	"submariner-route-agent": cluster.RouteAgentName,
}

// runComponent answers upstream's "subctl show versions", which runs "submariner-gateway
// --version" in the pods and reads "submariner-gateway version: X" from stderr. It returns
// false if program, the path by which this program was started, is not such a name.
func runComponent(io genericiooptions.IOStreams, program string, args []string) (code int, ok bool) {
	name := filepath.Base(program)
	component, ok := components[name]
	if !ok {
		return cli.ExitDone, false
	}
	if len(args) != 1 || args[0] != "--version" {
		fmt.Fprintf(io.ErrOut, "Error: %s takes only --version: the agents are started by \"subctl agent\"\n", name)
		return cli.ExitUsage, true
	}
	fmt.Fprintf(io.ErrOut, "%s version: %s\n", component, version.Version)
	return cli.ExitDone, true
}
