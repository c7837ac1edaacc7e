package cmd

import (
	"github.com/spf13/cobra"

	"subctl/internal/cli"
)

func newBroker(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "broker",
		Short: "Remove a broker",
		Long:  "Remove the broker on the cluster of the current context. subctl deploy-broker deploys one.",
		Args:  cli.NoSuchCommand,
	}
	c.AddCommand(newBrokerRemove(g))
	return c
}
