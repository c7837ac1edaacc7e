package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"subctl/lab/fabric"
	"subctl/lab/plan"
)

const cutNames = `A and B are a node (cluster1-node2), an API server (cluster1-api), all of a cluster (cluster1) or this machine (host).`

func newCut(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "cut A [B]",
		Short: "Cut the path between two, or between one and everything else",
		Long: `Drops what A and B send each other, or, without B, what A exchanges with anybody. Links stay up: the ends notice silence only.
` + cutNames,
		Example: `  lab cut cluster1-node1                     # a node is cut off
  lab cut cluster1-node1 cluster2            # ... from cluster2 only
  lab cut cluster2 cluster1-api              # cluster2 loses the broker on cluster1, and nothing else`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error { return l.changeCuts(args, severed) },
	}
}

func newHeal(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "heal [A [B]]",
		Short: "Undo cuts",
		Long: `Heals the path between A and B; without B, all paths of A; without A, everything.
` + cutNames,
		Args: cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return l.changeCuts(args, healed) },
	}
}

// changeCuts hands what is severed and the groups the user named to change, and makes what it
// returns so.
func (l *lab) changeCuts(
	args []string,
	change func(clusters []plan.Cluster, now []plan.Cut, named [][]plan.Port) []plan.Cut,
) error {
	if err := needRoot(); err != nil {
		return err
	}
	clusters, err := l.running()
	if err != nil {
		return err
	}
	var named [][]plan.Port
	for _, arg := range args {
		ports, err := plan.Resolve(clusters, arg)
		if err != nil {
			return err
		}
		named = append(named, ports)
	}
	if len(named) == 2 && len(plan.Between(named[0], named[1])) == 0 {
		return fmt.Errorf("there is no path between %s and itself", args[0])
	}
	now, err := fabric.Cuts()
	if err != nil {
		return err
	}
	return fabric.SetCuts(change(clusters, now, named))
}

func severed(clusters []plan.Cluster, now []plan.Cut, named [][]plan.Port) []plan.Cut {
	if len(named) == 1 {
		return plan.SortCuts(append(now, plan.Alone(clusters, named[0])...))
	}
	return plan.SortCuts(append(now, plan.Between(named[0], named[1])...))
}

func healed(_ []plan.Cluster, now []plan.Cut, named [][]plan.Port) []plan.Cut {
	switch len(named) {
	case 0:
		return nil
	case 1:
		return plan.Heal(now, named[0])
	}
	return plan.Without(now, plan.Between(named[0], named[1]))
}
