package cmd

import (
	"github.com/spf13/cobra"

	"subctl/internal/cli"
)

func newSdewanCNF(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "cnf",
		Short: "Make a CNF",
		Args:  cli.NoSuchCommand,
	}
	c.AddCommand(newCNFRender(g))
	return c
}
