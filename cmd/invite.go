package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/trust"
	"subctl/cable"
	"subctl/cluster/join"
	"subctl/globalnet"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
)

const inviteLong = `Write a join file for one cluster, for the broker on the cluster of the current context.

The file that deploy-broker wrote can make any cluster a member. This one is for one cluster ID,
and for the networks, the number of gateway nodes, the clustersets and the namespaces of exported
Services that the flags specify (on a broker with globalnet also for a global network, which stays
reserved until the file has expired, or the cluster has joined and left): the other clusters, and as
far as possible the broker, refuse anything else. It expires, a later invitation of the cluster
replaces it, and subctl uninvite withdraws it. With --networks, the command warns of conflicts with
networks of other clusters, also of those that the cluster will not see.

The file contains an invitation, which is signed with the administrator's key of the file
that deploy-broker wrote (--broker-info), and the pre-shared key of the cables. Protect it
like a password.`

const inviteExample = `  # a file with which only cluster "north" can join, within an hour
  subctl invite north --context hub

  # the networks that it may announce, and the number of its gateway nodes
  subctl invite north --networks 10.244.0.0/16,10.96.0.0/12 --gateways 2 --ttl 24h --join-file north.subm --context hub

  # show what would change on the broker
  subctl invite north --context hub --dry-run`

type inviteCluster struct {
	invite   inviteOptions
	networks []string
	bounds   trust.Invitation
	keyFile  string
	dryRun   bool
	format   *printer.Flag
	// The global network of the cluster, on a broker with globalnet.
	globalnet     bool
	globalnetCIDR string
	globalRequest globalnet.NetworkRequest // of the flags, once they are checked
	globalnetSize uint
	flags         *pflag.FlagSet
}

func newInvite(g *globals) *cobra.Command {
	o := &inviteCluster{}
	c := &cobra.Command{
		Use:     "invite CLUSTER",
		Short:   "Write a join file for one cluster",
		Long:    inviteLong,
		Example: inviteExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("invite requires the ID of one cluster: subctl invite CLUSTER")
			}
			o.bounds.Cluster = args[0]
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context(), g)) },
	}
	cli.Lacks(c, "contexts", "a broker is on one cluster: choose it with --context")
	f := c.Flags()
	o.flags = f
	f.StringVarP(&o.invite.namespace, "namespace", "n", submarinerv1.BrokerNamespace, "namespace of the broker")
	f.StringVar(&o.invite.url, "broker-url", "",
		"address of the broker's API server for the cluster, https://host:port (default: the address in the file of --broker-info)")
	o.invite.addNameFlag(f, "in the file of --broker-info if its address is used")
	f.StringVar(&o.keyFile, "broker-info", broker.JoinFileName,
		"join file that deploy-broker wrote, which may have expired; - for stdin")
	f.StringSliceVar(&o.networks, "networks", nil,
		"networks that the cluster may announce, such as 10.244.0.0/16 (default: any)")
	f.BoolVar(&o.globalnet, "globalnet", true,
		"on a broker with globalnet, reserve a global network for the cluster, besides --networks")
	f.StringVar(&o.globalnetCIDR, "globalnet-cidr", "",
		"that network, such as 242.1.0.0/16 (default: allocated from the range of the broker)")
	f.UintVar(&o.globalnetSize, "globalnet-cluster-size", 0,
		"number of addresses of that network; rounded up to a power of two (default: the broker's)")
	f.StringSliceVar(&o.bounds.ExportNamespaces, "export-namespaces", nil, "namespaces from which the cluster may "+
		"export Services: names, or "+
		"beginnings of names that end with * (default: all but kube-*, openshift-* and submariner-*)")
	f.IntVar(&o.bounds.Gateways, "gateways", 2, "maximum number of gateway nodes of the cluster")
	f.StringSliceVar(&o.bounds.Sets, "clusterset", []string{submarinerv1.DefaultClusterSet},
		"clustersets that the cluster may join")
	f.DurationVar(&o.invite.ttl, "ttl", time.Hour, "lifetime of the file")
	f.StringVar(&o.invite.file, "join-file", "",
		"join file to write, - for stdout; an existing file is renamed (default: CLUSTER.subm)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it, or writing the file")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	cli.Complete(c, "clusterset", func(ctx context.Context) ([]string, error) {
		targets, err := g.Targets(nil)
		return look.SetNames(ctx, targets), err
	})
	return c
}

func (o *inviteCluster) run(ctx context.Context, g *globals) error {
	o.invite.file = cmp.Or(o.invite.file, o.bounds.Cluster+".subm")
	if err := o.check(); err != nil {
		return cli.UsageError(err)
	}
	general, err := g.generalFile(o.keyFile)
	if err != nil {
		return err
	}
	c, err := g.Client(ctx)
	if err != nil {
		return err
	}
	hub, err := readBroker(ctx, c, o.invite.namespace)
	if err != nil {
		return err
	}
	if err := general.CheckBroker(hub); err != nil {
		return fmt.Errorf("%s %w", o.keyFile, err)
	}
	if !hub.Spec.GlobalnetEnabled &&
		(o.globalnetCIDR != "" || o.globalnetSize > 0 || o.globalnet && o.flags.Changed("globalnet")) {
		return fmt.Errorf(
			"the broker has no globalnet: enable it with subctl deploy-broker --globalnet, or omit --globalnet, --globalnet-cidr and --globalnet-cluster-size")
	}
	discard, err := o.invite.create()
	if err != nil {
		return err
	}
	defer discard()
	isMember, err := broker.IsMember(ctx, c, o.invite.namespace, o.bounds.Cluster)
	if err != nil {
		return err
	}
	if isMember {
		g.progress().Warn("cluster %s is a member already, and stays connected: the file lets it join again, to "+
			"change or repair it; to withdraw the file, run subctl uninvite %[1]s", o.bounds.Cluster)
	}
	if o.dryRun {
		return o.printActions(ctx, g, c, hub)
	}
	file, err := broker.InviteCluster(ctx, c, hub, broker.Invitation{
		URL: cmp.Or(o.invite.url, general.BrokerURL), ServerName: o.serverName(general), CA: general.CA,
		PSK: general.PSK, Administrator: general.AdministratorKey(), TTL: o.invite.ttl,
		Global: o.globalNetwork(),
	}, o.bounds, g.Now())
	if err != nil {
		return err
	}
	if len(o.networks) > 0 && (o.globalNetwork() == nil || !hub.Spec.GlobalnetEnabled) {
		o.warnOfNetworks(ctx, g)
	}
	for _, w := range broker.AddressWarnings(file.BrokerURL) {
		g.progress().Warn("%s", w)
	}
	return o.invite.report(ctx, g, file)
}

// printActions prints what the command would change on the broker.
func (o *inviteCluster) printActions(ctx context.Context, g *globals, c client.Client, hub *v1alpha1.Broker) error {
	if _, err := broker.CheckInvitation(ctx, c, hub, o.globalNetwork(), o.bounds, g.Now()); err != nil {
		return err
	}
	if len(o.networks) > 0 && (o.globalNetwork() == nil || !hub.Spec.GlobalnetEnabled) {
		o.warnOfNetworks(ctx, g)
	}
	lines := []string{
		"make earlier join files for cluster " + o.bounds.Cluster + " void",
		"create an identity on the broker with which cluster " + o.bounds.Cluster + " can join clusterset " +
			strings.Join(o.bounds.Sets, ", "),
	}
	if o.globalNetwork() != nil && hub.Spec.GlobalnetEnabled {
		lines = append(lines, "reserve a global network for it")
	}
	return cli.PrintActions(g.IOStreams, o.format.Format(), append(lines,
		fmt.Sprintf("write %s, with which it can join for %s", o.invite.fileName(), words.Duration(o.invite.ttl))))
}

// serverName returns the name in the certificate of the broker at the address in the new file.
func (o *inviteCluster) serverName(general *broker.JoinFile) string {
	if o.invite.name == "" && o.invite.url == "" {
		return general.TLSServerName
	}
	return o.invite.name
}

// globalNetwork returns which global network the cluster is to have; nil: none.
func (o *inviteCluster) globalNetwork() *globalnet.NetworkRequest {
	if !o.globalnet {
		return nil
	}
	return &o.globalRequest
}

// check returns all mistakes on the command line.
func (o *inviteCluster) check() error {
	o.bounds.Sets = slices.Compact(slices.Sorted(slices.Values(o.bounds.Sets)))
	errs := []error{submarinerv1.CheckClusterID(o.bounds.Cluster), o.invite.checkWith("--ttl", "--join-file")}
	networks, err := cable.ParseCIDRs("--networks", o.networks)
	o.bounds.Networks = networks
	errs = append(errs, err)
	if n := o.bounds.Gateways; n < 1 || n > trust.MaxGateways {
		errs = append(errs,
			fmt.Errorf("--gateways %d is not a number of gateway nodes: specify 1 to %d", n, trust.MaxGateways))
	}
	errs = append(errs, trust.CheckNamespaces("--export-namespaces", o.bounds.ExportNamespaces))
	o.bounds.ExportNamespaces = trust.SortNamespaces(o.bounds.ExportNamespaces)
	for _, set := range o.bounds.Sets {
		errs = append(errs, broker.CheckClusterSet(set))
	}
	flags := join.Options{
		ClusterID:     o.bounds.Cluster,
		Globalnet:     o.globalnet,
		GlobalnetCIDR: o.globalnetCIDR,
		GlobalnetSize: o.globalnetSize,
	}
	o.flags.Visit(func(flag *pflag.Flag) { flags.Specified = append(flags.Specified, flag.Name) })
	o.globalRequest, err = flags.GlobalnetRequest()
	return errors.Join(append(errs, err)...)
}
