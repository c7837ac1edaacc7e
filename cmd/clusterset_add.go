package cmd

import (
	"github.com/spf13/cobra"
)

const clustersetAddLong = `Add clusters that have joined to a clusterset, without access to them.

Their rights on the broker and their grants are renewed, for which the join file with the
administrator's key is needed. The clusters follow by themselves, within seconds. The pairs of
clusters that are connected then are printed on stdout.`

func newClusterSetAdd(g *globals) *cobra.Command {
	return (&clustersetChange{setsFlags: setsFlags{globals: g}}).command("add", "Add clusters to a clusterset",
		clustersetAddLong,
		"  subctl clusterset add hub-a east west --context hub --dry-run\n  subctl clusterset add hub-a east west --context hub")
}
