package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/printer"
)

const uninviteLong = `Withdraw the invitation of a cluster, on the broker on the cluster of the current context:
no cluster can join with the join files that subctl invite wrote for it, and the global network
that is reserved for it becomes free.

A cluster that has joined stays a member, and stays connected: subctl revoke removes it. The
tokens of the files end on the broker. The signature of an invitation stays valid until the
invitation expires, for whoever controls the broker: if you do not trust it, use subctl revoke.`

const uninviteExample = `  subctl uninvite north --context hub`

type uninvite struct {
	*globals
	namespace string
	dryRun    bool
	format    *printer.Flag
}

func newUninvite(g *globals) *cobra.Command {
	o := &uninvite{globals: g}
	c := &cobra.Command{
		Use:     "uninvite CLUSTER",
		Short:   "Withdraw the invitation of a cluster",
		Long:    uninviteLong,
		Example: uninviteExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("uninvite requires the ID of one cluster: subctl uninvite CLUSTER")
			}
			return submarinerv1.CheckClusterID(args[0])
		},
		RunE: func(c *cobra.Command, args []string) error { return forAdministrators(o.run(c.Context(), args[0])) },
	}
	cli.Lacks(c, "contexts", "a broker is on one cluster: choose it with --context")
	c.Flags().StringVarP(&o.namespace, "namespace", "n", submarinerv1.BrokerNamespace, "namespace of the broker")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = cli.CompleteArgument(func(ctx context.Context) ([]string, error) {
		client, err := g.Client(ctx)
		if err != nil {
			return nil, err
		}
		state, err := broker.Look(ctx, client, o.namespace)
		return state.Invited, err
	})
	return c
}

func (o *uninvite) run(ctx context.Context, id string) error {
	c, err := o.Client(ctx)
	if err != nil {
		return err
	}
	if _, err := readBroker(ctx, c, o.namespace); err != nil {
		return err
	}
	if o.dryRun {
		return cli.PrintActions(o.IOStreams, o.format.Format(), []string{
			"make the join files void that subctl invite wrote for cluster " + id,
		})
	}
	was, err := broker.Uninvite(ctx, c, o.namespace, id)
	if err != nil {
		return err
	}
	isMember, err := broker.IsMember(ctx, c, o.namespace, id)
	switch {
	case err != nil:
		return err
	case !was:
		return fmt.Errorf("the broker has no invitation of cluster %q: choose another cluster, or another broker "+
			"with --context", id)
	case isMember:
		o.progress().Done("withdrew the invitation of cluster %s, which stays a member", id)
	default:
		o.progress().Done("withdrew the invitation of cluster %s", id)
	}
	return nil
}
