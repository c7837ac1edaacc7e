package cmd

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/version"
)

// versionInfo is the output of "subctl version -o json"; its JSON is a promise.
type versionInfo struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func newVersion(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of subctl",
		Long:  "Print the version of this subctl.\n\nTo print the versions of the agents in clusters, use \"subctl show versions\".",
		Args:  cli.NoArguments,
	}
	cli.ContactsNoCluster(c, ": see subctl show versions")
	format := cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.RunE = func(*cobra.Command, []string) error {
		if format.Format() == printer.Table {
			_, err := fmt.Fprintf(g.Out, "subctl version: %s\n", version.Version)
			return err
		}
		return printer.Encode(g.Out, format.Format(), versionInfo{
			Version: version.Version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	return c
}
