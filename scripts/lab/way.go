package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"subctl/lab/fabric"
	"subctl/lab/plan"
)

func newNAT(l *lab) *cobra.Command {
	var off bool
	var forward []int
	cmd := &cobra.Command{
		Use:   "nat CLUSTER",
		Short: "Put a cluster behind address translation",
		Long: `Puts the nodes of a cluster behind a translating router: what they send to other clusters comes from its address and from ports
that they did not choose, and nobody but this machine reaches a node that has not asked first. API servers are reached as before.
Connections that are there break once. Another call replaces what was said before.`,
		Example: `  lab nat cluster3                           # nothing gets in
  lab nat cluster3 --forward 4490,4500,4501  # ... but what the router forwards to cluster3-node1
  lab nat cluster3 --off`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := l.cluster(args[0])
			if err != nil {
				return err
			}
			if off {
				return fabric.StopTranslating(c)
			}
			for _, port := range forward {
				if port < 1 || port > 65535 {
					return fmt.Errorf("--forward %d: it is not a UDP port from 1 to 65535", port)
				}
			}
			if err := fabric.Translate(c, forward); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is seen as %s\n", c.Name(), c.Gateway().Addr())
			return nil
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "end the translation")
	cmd.Flags().IntSliceVar(&forward, "forward", nil,
		"UDP ports of the router that are forwarded to the cluster's first node")
	cmd.MarkFlagsMutuallyExclusive("off", "forward")
	return cmd
}

// What an MTU may be: the least that hosts must be able to receive (RFC 791), and what the lab's
// links have.
const (
	minMTU = 576
	maxMTU = 1500
)

func newMTU(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "mtu BYTES",
		Short: "Narrow the ways between the clusters",
		Long: fmt.Sprintf(
			`Lets packets of no more than so many bytes through between the clusters that are up; %d is what their links let through.
The ends are not told but by ICMP, when they send more. Within a cluster nothing changes.`,
			maxMTU,
		),
		Example: `  lab mtu 1400`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			mtu, err := strconv.Atoi(args[0])
			if err != nil || mtu < minMTU || mtu > maxMTU {
				return fmt.Errorf("mtu %q: it must be between %d and %d bytes", args[0], minMTU, maxMTU)
			}
			if err := needRoot(); err != nil {
				return err
			}
			clusters, err := l.running()
			if err != nil {
				return err
			}
			return fabric.SetMTU(clusters, mtu)
		},
	}
}

// cluster finds a cluster of the lab by its name.
func (l *lab) cluster(name string) (plan.Cluster, error) {
	if err := needRoot(); err != nil {
		return plan.Cluster{}, err
	}
	clusters, err := l.running()
	if err != nil {
		return plan.Cluster{}, err
	}
	var known []string
	for _, c := range clusters {
		known = append(known, c.Name())
	}
	if i := slices.Index(known, name); i >= 0 {
		return clusters[i], nil
	}
	return plan.Cluster{}, fmt.Errorf("no cluster is called %q: use one of %s", name, strings.Join(known, ", "))
}
