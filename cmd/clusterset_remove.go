package cmd

import (
	"github.com/spf13/cobra"
)

const clustersetRemoveLong = `Remove clusters from a clusterset, without access to them.

Their rights in the clusterset end first, and then their objects in it are deleted. The other
members disconnect them, within seconds, unless they share another clusterset. The pairs of
clusters that lose their connection are printed on stdout: the command requires --force if there
are any, and if a cluster would leave its last clusterset.`

func newClusterSetRemove(g *globals) *cobra.Command {
	return (&clustersetChange{setsFlags: setsFlags{globals: g}, remove: true}).command("remove", "Remove clusters from a clusterset", clustersetRemoveLong,
		"  subctl clusterset remove hub-a east --context hub --dry-run\n  subctl clusterset remove hub-a east --context hub --force")
}
