package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"subctl/internal/version"
)

func newVersion(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of subctl",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(g.Out, "subctl version: %s\n", version.Version)
			return err
		},
	}
}
