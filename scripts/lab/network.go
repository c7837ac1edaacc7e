package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"subctl/lab/fabric"
	"subctl/lab/plan"
)

func newNetwork(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "network NAME...",
		Short: "Connect all nodes to a network of its own, for pods with several networks",
		Long: `Makes a network that is not the clusters': each node gets a bridge of this name, and all bridges are one segment. Pods are attached
to it by Multus (lab up --multus), with a NetworkAttachmentDefinition for the plugin "bridge" that names the bridge. Nodes that are added
or started later get it too.`,
		Example: `  lab network lan wan1 wan2`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			clusters, err := l.running()
			if err != nil {
				return err
			}
			for _, arg := range args {
				if err := plan.Network(arg).Validate(); err != nil {
					return err
				}
			}
			for _, arg := range args {
				if err := fabric.EnsureNetwork(plan.Network(arg)); err != nil {
					return fmt.Errorf("making network %s: %w", arg, err)
				}
			}
			for _, c := range clusters {
				if err := fabric.EnsureCluster(c); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newHost(l *lab) *cobra.Command {
	var routes []string
	cmd := &cobra.Command{
		Use:   "host NAME NETWORK=ADDRESS/BITS...",
		Short: "Add a machine outside the clusters, connected to networks",
		Long: `Makes a network namespace that is connected to networks and forwards packets between them: a router, or what pods speak to.
lab exec NAME runs programs in it, such as bin/labapp.`,
		Example: `  lab host isp1 wan1=198.51.100.1/24 core=192.0.2.1/24
  lab host internet core=192.0.2.80/24 --route 198.51.100.0/24=192.0.2.1
  lab exec internet -- bin/labapp web`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			if _, err := l.running(); err != nil {
				return err
			}
			h, err := plan.ParseHost(args[0], args[1:], routes)
			if err != nil {
				return err
			}
			return fabric.EnsureHost(h)
		},
	}
	cmd.Flags().StringSliceVar(&routes, "route", nil, "DESTINATION=GATEWAY; the destination may be \"default\"")
	return cmd
}
