package cmd

import "github.com/spf13/cobra"

// everything is what "subctl show all -o json" prints; its JSON is a promise.
type everything struct {
	Brokers     []brokerRow     `json:"brokers"`
	Connections []connectionRow `json:"connections"`
	Endpoints   []endpointRow   `json:"endpoints"`
	Gateways    []gatewayRow    `json:"gateways"`
	Networks    []networksRow   `json:"networks"`
	Versions    []versionRow    `json:"versions"`
}

func newShowAll(g *globals) *cobra.Command {
	s := &show{globals: g}
	brokers, connections, endpoints := brokersView(), connectionsView(), endpointsView()
	gateways, networks, versions := gatewaysView(), networksView(), versionsView()
	p := panel{
		sections: []section{
			brokers.section(), connections.section(), endpoints.section(),
			gateways.section(), networks.section(), versions.section(),
		},
		data: func(sites []site) any {
			return everything{
				brokers.all(sites), connections.all(sites), endpoints.all(sites),
				gateways.all(sites), networks.all(sites), versions.all(sites),
			}
		},
	}
	c := &cobra.Command{
		Use:   "all",
		Short: "Show everything",
		Long:  "Show brokers, connections, endpoints, gateways, networks and versions.",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return s.run(c.Context(), p) },
	}
	s.addFlags(c)
	return c
}
