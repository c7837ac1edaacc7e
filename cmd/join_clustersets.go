package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster/join"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
)

// createSets are the flags of join that create the clustersets to join.
type createSets struct {
	create  bool
	context string
}

func (o *createSets) add(c *cobra.Command, g *globals) {
	f := c.Flags()
	f.BoolVar(&o.create, "create-clusterset", false,
		"create the clustersets of --clusterset that the broker does not have; takes an administrator of the broker's cluster")
	f.StringVar(&o.context, "broker-context", "",
		"context of the broker's cluster for --create-clusterset (default: the cluster that joins)")
	cli.Complete(c, "broker-context", func(context.Context) ([]string, error) { return g.Contexts() })
	cli.Before(c, func() error {
		switch {
		case f.Changed("broker-context") && !o.create:
			return errors.New(
				"--broker-context requires --create-clusterset: join reaches the broker with the join file")
		case o.create && !f.Changed("clusterset"):
			return errors.New(
				"--create-clusterset requires --clusterset: specify the clustersets to create, such as --clusterset hub-a")
		}
		return nil
	})
}

// newSets returns the clustersets to create. It creates none.
func (o *createSets) newSets(
	ctx context.Context,
	g *globals,
	file *broker.JoinFile,
	wanted []string,
) (join.NewSets, error) {
	if !o.create {
		return join.NewSets{}, nil
	}
	if i, err := file.Invited(); err != nil || i != nil {
		return join.NewSets{}, errors.Join(
			err,
			cli.UsageError(
				errors.New(
					"--create-clusterset: this join file is an invitation, which is for certain clustersets of the broker: "+
						"ask the administrator of the broker to create them (subctl clusterset create) and for another invitation",
				),
			),
		)
	}
	admin, err := g.ClientFor(ctx, cmp.Or(o.context, *g.Flags.Context))
	if err != nil {
		return join.NewSets{}, err
	}
	hub, err := kube.Optional(ctx, admin, &v1alpha1.Broker{},
		client.ObjectKey{Namespace: file.BaseNamespace(), Name: v1alpha1.BrokerName})
	if err != nil {
		return join.NewSets{}, fmt.Errorf("reading the broker for --create-clusterset: %w", err)
	}
	if hub == nil || file.CheckBroker(hub) != nil {
		return join.NewSets{}, fmt.Errorf(
			"--create-clusterset: %s has not the broker of this join file, and the file itself gives no right to create clustersets: "+
				"specify the context of the broker's cluster with --broker-context, or run there: subctl clusterset create %s",
			o.where(),
			strings.Join(wanted, " "),
		)
	}
	sets, err := broker.ClusterSets(ctx, admin, hub.Namespace)
	if err != nil {
		return join.NewSets{}, err
	}
	for _, s := range sets {
		wanted = slices.DeleteFunc(wanted, func(name string) bool { return name == s.Name })
	}
	objects, err := broker.NewSets(ctx, admin, hub, wanted)
	return join.NewSets{Names: wanted, Administrator: admin, Objects: objects}, err
}

// where describes the cluster that must be the broker's.
func (o *createSets) where() string {
	if o.context == "" {
		return "the cluster that joins"
	}
	return fmt.Sprintf("the cluster of context %q", o.context)
}

// setsToJoin returns the clustersets that a cluster can join: the sets of its invitation, or else
// all sets of which the clusters of the kubeconfig know.
func setsToJoin(ctx context.Context, g *globals, args []string) ([]string, error) {
	if len(args) == 1 && args[0] != cli.StdStream {
		if file, err := broker.ReadOldJoinFile(args[0], nil); err == nil {
			if i, err := file.Invited(); err == nil && i != nil {
				return i.Sets, nil
			}
		}
	}
	targets, err := g.AllTargets()
	return look.SetNames(ctx, targets), err
}
