package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"subctl/internal/printer"
)

// output gives c a flag -o for the formats in choices, the first of which is the
// default.
func output(c *cobra.Command, choices ...printer.Format) *printer.Flag {
	f := printer.NewFlag(choices...)
	c.Flags().VarP(f, "output", "o", f.Usage())
	complete(c, "output", func(context.Context) ([]string, error) { return f.Choices(), nil })
	return f
}
