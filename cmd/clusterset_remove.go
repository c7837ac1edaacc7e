package cmd

import (
	"github.com/spf13/cobra"
)

const clustersetRemoveLong = `Remove clusters from a clusterset, without access to them.

Their rights in the clusterset end first, and then their objects in it are deleted. The other
members disconnect them, within seconds, unless they share another clusterset. All watches of
what clusters publish end, and members read again, so that a removed cluster reads nothing more
through a watch that it opened before. The pairs of
clusters that lose their connection are printed on stdout: the command requires --force if there
are any, and if a cluster would leave its last clusterset. Pods that still send to the
addresses of a cluster that is disconnected then send in clear text, over the default routes
of their nodes: see "After a cluster has left" in docs/cable-policies.md for what to do before.`

func newClusterSetRemove(g *globals) *cobra.Command {
	return (&clustersetChange{setsFlags: setsFlags{globals: g}, remove: true}).command("remove",
		"Remove clusters from a clusterset", clustersetRemoveLong,
		"  subctl clusterset remove hub-a east --context hub --dry-run\n  subctl clusterset remove hub-a east --context hub --force")
}
