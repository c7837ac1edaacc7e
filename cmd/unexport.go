package cmd

import (
	"github.com/spf13/cobra"

	"subctl/internal/cli"
)

func newUnexport(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "unexport",
		Short: "Stop exporting a Service",
		Args:  cli.NoSuchCommand,
	}
	c.AddCommand(newUnexportService(g))
	return c
}
