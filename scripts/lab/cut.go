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
		RunE: func(_ *cobra.Command, args []string) error {
			return l.changeCuts(args, func(now, named []plan.Cut) []plan.Cut { return plan.SortCuts(append(now, named...)) })
		},
	}
}

func newHeal(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "heal [A [B]]",
		Short: "Undo cuts",
		Long: `Heals the path between A and B; without B, all paths of A; without A, everything.
` + cutNames,
		Args: cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return l.changeCuts(args, func(now, named []plan.Cut) []plan.Cut {
				if len(args) == 0 {
					return nil
				}
				return plan.Without(now, named)
			})
		},
	}
}

func (l *lab) changeCuts(args []string, change func(now, named []plan.Cut) []plan.Cut) error {
	if err := needRoot(); err != nil {
		return err
	}
	clusters, err := l.running()
	if err != nil {
		return err
	}
	named, err := namedCuts(clusters, args)
	if err != nil {
		return err
	}
	now, err := fabric.Cuts()
	if err != nil {
		return err
	}
	return fabric.SetCuts(change(now, named))
}

func namedCuts(clusters []plan.Cluster, args []string) ([]plan.Cut, error) {
	if len(args) == 0 {
		return nil, nil
	}
	a, err := plan.Resolve(clusters, args[0])
	if err != nil {
		return nil, err
	}
	if len(args) == 1 {
		return plan.Alone(clusters, a), nil
	}
	b, err := plan.Resolve(clusters, args[1])
	if err != nil {
		return nil, err
	}
	cuts := plan.Between(a, b)
	if len(cuts) == 0 {
		return nil, fmt.Errorf("there is no path between %s and itself", args[0])
	}
	return cuts, nil
}
