package main

import (
	"github.com/spf13/cobra"
)

func newFavor(l *lab) *cobra.Command {
	var times int
	cmd := &cobra.Command{
		Use:   "favor NODE...",
		Short: "Give nodes more of the processors than others",
		Long: `All nodes share this machine's processors in equal parts. A favored node gets --times as much as another one when all of them are busy:
as if it had processors of its own, which other nodes cannot keep waiting. It stays so until the lab is taken down.`,
		Example: `  lab favor cluster1-node3 cluster2-node3    # what their pods measure is less often the time that they wait`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				n, tree, err := l.node(name)
				if err != nil {
					return err
				}
				if err := tree.Favor(n.Name(), times); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&times, "times", 20, "how much more")
	return cmd
}
