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

	"subctl/broker"
	"subctl/cable/drivers"
	"subctl/cluster"
	"subctl/cluster/join"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/progress"
	"subctl/internal/proxy"
	"subctl/internal/wake"
)

const joinLong = `Join the cluster of the current context to a broker, with the file that deploy-broker
wrote; - is stdin.

All checks run before anything is changed on either cluster. Then join claims the cluster ID
on the broker, installs the agents in namespace submariner-operator, and labels a node as
gateway if there is none. To finish an interrupted join, or to repair or change one, run the
command again: settings without a flag stay as they are, and the settings that change are
printed first. With --reset, settings without a flag return to their defaults, except
encryption and clustersets. A change that leaves a pair of clusters without a cable or its encryption, or
through which other clusters can no longer reach addresses of this one, is refused without
--force.

Cable policies decide which cable connects two clusters. --cable-driver counts only where no
policy matches, not even the policy "default", which deploy-broker creates. With --encryption
required, this cluster is never connected without encryption, whatever the policies decide.

The broker reserves room for four gateways and four cable policies of the cluster, or for as
many as it has, and for fewer where hundreds of clusters have joined. If the cluster has more
later, its gateways report that: run the command again.

Pod and Service networks are discovered; subctl warns if the result is a guess. Clusters that use
the same addresses can be connected only on a broker with globalnet (docs/globalnet.md).

subctl itself reaches the broker through the proxy of --proxy-url, or of the kubeconfig if it has
the broker's address, or of HTTPS_PROXY and NO_PROXY. The gateways reach it through the proxy of
--https-proxy; for a new cluster, the default is the proxy of HTTPS_PROXY, with its user and
password, which are stored in a Secret. Only the broker is reached through it, unless it is in the
cluster's own networks (docs/broker-address.md).

The cluster and the broker need Kubernetes 1.30 or later.`

const joinExample = `  # join the cluster of context "west"
  subctl join broker-info.subm --context west --clusterid west --image registry.example/subctl:v1

  # specify the networks and the gateways
  subctl join broker-info.subm --clustercidr 10.244.0.0/16 --servicecidr 10.96.0.0/12 --gateway-nodes gw-1,gw-2

  # two gateway nodes, in different zones if there are several, both active
  subctl join broker-info.subm --gateways 2 --multi-active-gateway

  # change one setting of a cluster that has joined
  subctl join broker-info.subm --context west --cluster-labels site=cloud

  # join another clusterset, too, and create it
  subctl join broker-info.subm --context west --clusterset default,hub-b --create-clusterset --broker-context hub

  # on a broker with globalnet, use a global network of 4,096 addresses
  subctl join broker-info.subm --context west --globalnet-cluster-size 4096

  # show what would change, and print the objects to write
  subctl join broker-info.subm --dry-run
  subctl join broker-info.subm --dry-run -o yaml`

// joinOptions are the options of join.
type joinOptions struct {
	join.Options
	createSets
	file        string
	checkBroker bool
	dryRun      bool
	force       bool
	wait        bool
	timeout     time.Duration
	format      *printer.Flag
}

func newJoin(g *globals) *cobra.Command {
	o := &joinOptions{Options: join.DefaultOptions()}
	c := &cobra.Command{
		Use:     "join FILE",
		Short:   "Join a cluster to a broker",
		Long:    joinLong,
		Example: joinExample,
		Args:    oneJoinFile,
	}
	cli.Lacks(c, "contexts", "each cluster joins with its own ID and networks: choose it with --context")
	f := c.Flags()
	f.StringVar(&o.ClusterID, "clusterid", "",
		"ID of this cluster, unique among all clusters of the broker (default: its ID if it has joined, else its name in the kubeconfig)")
	f.StringSliceVar(&o.ClusterCIDRs, "clustercidr", nil, "pod networks, such as 10.244.0.0/16 (default: discovered)")
	f.StringSliceVar(&o.ServiceCIDRs, "servicecidr", nil,
		"Service networks, such as 10.96.0.0/12 (default: discovered)")
	o.addDriverFlags(c)
	f.StringToStringVar(&o.Labels, "cluster-labels", nil,
		"labels of this cluster, which the selectors of cable policies match")
	f.BoolVar(&o.Globalnet, "globalnet", o.Globalnet,
		"on a broker with globalnet, get a global network, so that the cluster may use the same pod and Service networks as others; a cluster that has joined without one keeps its own networks unless this flag is set")
	f.StringVar(&o.GlobalnetCIDR, "globalnet-cidr", "",
		"the global network, such as 242.1.0.0/16 (default: allocated from the range of the broker)")
	f.UintVar(&o.GlobalnetSize, "globalnet-cluster-size", 0,
		"number of addresses of the global network; rounded up to a power of two (default: the broker's)")
	f.StringSliceVar(&o.ClusterSets, "clusterset", nil, `clustersets to join (default: "default")`)
	o.createSets.add(c, g)
	f.BoolVar(&o.ServiceDiscovery, "service-discovery", o.ServiceDiscovery, "export and import Services by name "+
		"(default: as deploy-broker --service-discovery has specified, else true)")
	f.BoolVar(&o.DNS, "dns", o.DNS, "make the cluster's DNS forward the names of imported Services, or print how "+
		"(see docs/services.md); false: leave it alone, and take away what an earlier join has added")
	f.StringVar(&o.CoreDNSConfig, "coredns-custom-configmap", "", "ConfigMap of CoreDNS for that, NAME in kube-system "+
		"or NAMESPACE/NAME (default: subctl finds out what to change)")
	f.StringSliceVar(&o.ExportNamespaces, "export-namespaces", nil, "namespaces from which this cluster may export "+
		"Services: names, or "+
		"beginnings of names that end with * (default: all but kube-*, openshift-* and submariner-*)")
	f.BoolVar(&o.NAT, "natt", o.NAT, "gateways are behind NAT (see docs/nat.md)")
	f.BoolVar(&o.LabelGateway, "label-gateway", o.LabelGateway, "label a node as a gateway if there is none, and "+
		"other nodes in place of gateway nodes that are gone (see docs/failover.md)")
	f.StringSliceVar(&o.GatewayNodes, "gateway-nodes", nil,
		"nodes to label as gateways (default: the first worker by name if there is no gateway)")
	f.IntVar(&o.Gateways, "gateways", 0, "number of gateway nodes to have, now and when nodes are replaced: label as "+
		"many as are missing, spread over zones (topology.kubernetes.io/zone)")
	f.BoolVar(&o.HealthCheck, "health-check", o.HealthCheck,
		"ping the other gateways through the cables; failover does not depend on it (see docs/failover.md)")
	f.Uint64Var(&o.HealthCheckInterval, "health-check-interval", o.HealthCheckInterval,
		"time between pings, in seconds")
	f.Uint64Var(&o.HealthCheckMaxLoss, "health-check-max-packet-loss-count", o.HealthCheckMaxLoss,
		"number of consecutive lost pings after which a connection is down")
	f.StringVar(&o.Image, "image", "", "image of the agents (default: the image of this version of subctl)")
	f.BoolVar(&o.MultiActiveGateway, "multi-active-gateway", false,
		"make every gateway node active, not only one (see docs/failover.md)")
	f.StringVar(&o.BrokerURL, "broker-url", "",
		"address of the broker's API server, https://host:port (default: the address in FILE)")
	f.StringVar(&o.BrokerServerName, "broker-tls-server-name", "",
		"name in the certificate of the broker's API server (default: the name in FILE, else the host in the address)")
	f.StringVar(&o.HTTPSProxy, "https-proxy", "", "proxy through which the gateways reach the broker, such as "+
		"http://proxy.example:3128; none: no proxy (default: the proxy of HTTPS_PROXY here for a new cluster)")
	f.StringSliceVar(&o.NoProxy, "no-proxy", nil, "names, addresses and networks that the gateways reach without "+
		"that proxy, besides their own networks (default: NO_PROXY if the proxy is the one of HTTPS_PROXY)")
	f.BoolVar(&o.checkBroker, "check-broker-certificate", true, "verify the certificate of the broker's API server")
	f.BoolVar(&o.Reset, "reset", false,
		"reset the settings without a flag to their defaults, instead of leaving them as they are")
	f.BoolVar(&o.dryRun, "dry-run", false,
		"print what would change on broker and cluster, without writing it; with -o, the objects to write")
	f.BoolVar(&o.force, "force", false,
		"change it even if pairs of clusters lose their cable or its encryption, or addresses can no longer be reached, and join even if another cluster announces the same addresses")
	f.BoolVar(&o.wait, "wait", true, "wait until every pair of clusters is connected and uses its new cable")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "time limit for --wait")
	o.format = cli.Output(c, printer.YAML, printer.JSON)
	cli.GroupFlags(c, "This cluster", "clusterid", "clustercidr", "servicecidr", "cluster-labels", "clusterset",
		"create-clusterset", "broker-context", "image", "reset")
	cli.GroupFlags(c, "Gateways", "gateways", "gateway-nodes", "label-gateway", "multi-active-gateway", "natt")
	cli.GroupFlags(c, "The broker", "broker-url", "broker-tls-server-name", "check-broker-certificate", "https-proxy",
		"no-proxy")
	cli.GroupFlags(c, "Cables", "cable-driver", "cable-drivers", "combined-cable-drivers", "cable-driver-config",
		"encryption")
	cli.GroupFlags(c, "IPsec", "nattport", "force-udp-encaps", "ipsec-debug", "preferred-server")
	cli.GroupFlags(c, "Global network", "globalnet", "globalnet-cidr", "globalnet-cluster-size")
	cli.GroupFlags(c, "Services", "service-discovery", "export-namespaces", "dns", "coredns-custom-configmap")
	cli.GroupFlags(c, "Health check", "health-check", "health-check-interval", "health-check-max-packet-loss-count")
	cli.Complete(c, "gateway-nodes", g.Reading(look.NodeNames))
	cli.Complete(c, "cable-driver-config", g.Reading(func(ctx context.Context, c client.Client) ([]string, error) {
		return look.SettingsNames(ctx, c, cluster.Namespace)
	}))
	cli.Complete(c, "clusterset", func(ctx context.Context) ([]string, error) { return setsToJoin(ctx, g, f.Args()) })
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.Changed("output") && !o.dryRun {
			return cli.UsageError(errors.New("--output requires --dry-run"))
		}
		o.file, o.InsecureBroker, o.AllowConflicts = args[0], !o.checkBroker, o.force
		o.Environment = proxy.FromEnvironment()
		f.Visit(func(flag *pflag.Flag) { o.Specified = append(o.Specified, flag.Name) })
		return o.run(c.Context(), g)
	}
	return c
}

func oneJoinFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf(
			"join requires one file, the file that subctl deploy-broker wrote (%s by default): subctl join FILE",
			broker.JoinFileName)
	}
	return nil
}

// run reads, plans and joins.
func (o *joinOptions) run(ctx context.Context, g *globals) error {
	file, err := o.check(g)
	if err != nil {
		return err
	}
	op, err := o.plan(ctx, g, file)
	if err != nil {
		return err
	}
	for _, w := range op.Plan.Warnings {
		op.Report.Warn("%s", w)
	}
	if op.Plan.LeftOut {
		op.Report.Note("service discovery is left out, as for all clusters of the broker: --service-discovery " +
			"installs it")
	}
	if text := op.Plan.ChangesText(); text != "" && !o.dryRun {
		op.Report.Warn("%s", text)
	}
	losses := op.Plan.Refusal()
	switch {
	case losses == nil:
	case o.force || o.dryRun:
		op.Report.Warn("%v", losses)
	default:
		return fmt.Errorf("%w\nnothing was changed: to change it nevertheless, add --force", losses)
	}
	if o.dryRun {
		rejected := op.Admitted(ctx)
		if rejected != nil {
			op.Report.Warn("%v", rejected)
		}
		if err := op.ShowDNS(ctx); err != nil {
			return err
		}
		err := o.printDryRun(ctx, g, op)
		if err == nil && (rejected != nil || losses != nil && !o.force) {
			err = cli.Trouble()
		}
		return err
	}
	if err := op.Run(ctx); err != nil {
		return err
	}
	if !o.wait {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = op.Wait(waiting)
	if err != nil {
		op.Report.Note("the agents go on without this command: to wait again, run subctl show connections --wait")
	}
	return cli.Waited(ctx, err)
}

// printDryRun prints how the broker and the cluster would change, or with -o the objects to
// write.
func (o *joinOptions) printDryRun(ctx context.Context, g *globals, op *join.Operation) error {
	found, err := op.DryRun(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(o.Specified, "output") {
		difference, err := op.Compare(ctx, found)
		if err != nil {
			return err
		}
		return cli.PrintDryRun(g.IOStreams, printer.Table,
			func() error { return printDifference(g.Out, difference, op) })
	}
	format := o.format.Format()
	return cli.PrintDryRun(g.IOStreams, format, func() error { return printDryRun(g.Out, format, found, op) })
}

// check returns the join file, or all mistakes on the command line and in the file. It
// contacts no cluster.
func (o *joinOptions) check(g *globals) (*broker.JoinFile, error) {
	if o.ClusterID == "" {
		name, err := g.ClusterName()
		if err != nil {
			return nil, err
		}
		if name == "" {
			return nil, cli.UsageError(errors.New("--clusterid is missing: the kubeconfig does not name the cluster"))
		}
		o.ClusterID = join.SuggestID(name)
	}
	mistakes := o.Validate()
	if o.BrokerURL != "" {
		address, err := broker.ParseURL(o.BrokerURL)
		if err != nil {
			mistakes = errors.Join(mistakes, fmt.Errorf("--broker-url %w", err))
		}
		o.BrokerURL = address
	}
	if o.timeout <= 0 {
		mistakes = errors.Join(
			mistakes,
			fmt.Errorf("--timeout %v is not a time limit: specify a positive duration such as 2m, or --wait=false",
				o.timeout),
		)
	}
	file, err := broker.ReadJoinFile(o.file, g.In, g.Now())
	if mistakes != nil {
		return nil, cli.UsageError(errors.Join(mistakes, err))
	}
	return file, err
}

// plan reads the facts about both clusters, and plans the join.
func (o *joinOptions) plan(ctx context.Context, g *globals, file *broker.JoinFile) (*join.Operation, error) {
	report := g.progress()
	report.Step("checking this cluster")
	facts := &join.Facts{}
	member, err := g.MemberSide(ctx)
	if err == nil {
		if facts, err = o.readFacts(ctx, member, report); err != nil {
			return nil, err
		}
	}
	options := o.With(facts.Submariner)
	used := *file
	if err == nil {
		if err := cmp.Or(facts.JoinedAs(options.ClusterID), options.Invited(file)); err != nil {
			return nil, err
		}
	}
	used.BrokerURL = o.Address(file, facts.Submariner)
	used.TLSServerName = o.ServerName(file, facts.Submariner)
	used.Proxy = g.BrokerProxy(used.BrokerURL)
	report.Step("checking the broker at %s", used.BrokerURL)
	hub, err2 := g.BrokerSide(ctx, used.RESTConfig(options.InsecureBroker))
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	newSets, err := o.newSets(ctx, g, file, options.Sets())
	if err != nil {
		return nil, err
	}
	brokerFacts, err := join.ReadBrokerFacts(ctx, hub, file.BaseNamespace(), options.ClusterID, options.Sets())
	if err != nil {
		return nil, err
	}
	brokerFacts.WillHave(newSets)
	plan, err := join.MakePlan(o.Options, file, facts, brokerFacts)
	if err != nil {
		return nil, err
	}
	report.Done("cluster %s can join the broker", options.ClusterID)
	return &join.Operation{
		Member: member, Broker: hub, File: &used, Plan: plan, NewSets: newSets, Report: report,
		Environment: o.Environment,
	}, nil
}

// readFacts reads the facts about the cluster. If the namespace of the agents is being deleted,
// after an uninstall, it waits until it is gone, for as long as --timeout permits.
func (o *joinOptions) readFacts(
	ctx context.Context, member cluster.Side, report *progress.Reporter,
) (*join.Facts, error) {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for waiting := false; ; waiting = true {
		facts, err := join.ReadFacts(ctx, member, o.Options)
		if err != nil || facts.Namespace == nil || facts.Namespace.DeletionTimestamp == nil || o.dryRun {
			return facts, err
		}
		if !waiting {
			report.Step("waiting until namespace %s, which is being deleted, is gone", facts.Namespace.Name)
		}
		if wake.After(limited, cluster.Poll) != nil {
			return facts, ctx.Err() // the plan refuses it
		}
	}
}

// addDriverFlags declares the flags that specify the cables and their settings.
func (o *joinOptions) addDriverFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(
		&o.CableDriver,
		"cable-driver",
		"",
		"default driver, used where no cable policy decides: "+drivers.Names()+
			" (default: the broker's choice, else "+drivers.Default+")",
	)
	f.StringSliceVar(&o.CableDrivers, "cable-drivers", nil,
		"cable drivers to offer (default: all drivers that the gateways can run)")
	f.StringSliceVar(&o.CombinedCableDrivers, "combined-cable-drivers", nil,
		"two drivers to offer as one combined cable, such as vxlan,ipsec: VXLAN inside IPsec")
	f.StringVar(&o.Encryption, "encryption", "",
		"required: never connect this cluster without encryption, whatever the cable policies decide; optional: let them decide (default: as before, optional for a new cluster)")
	f.StringVar(&o.CableDriverConfig, "cable-driver-config", "",
		"ConfigMap with settings of the cable drivers, in namespace "+cluster.Namespace)
	f.IntVar(&o.NATTPort, "nattport", o.NATTPort, "UDP port of IPsec")
	f.BoolVar(&o.ForceUDPEncaps, "force-udp-encaps", false, "encapsulate IPsec in UDP even without NAT")
	f.BoolVar(&o.IPsecDebug, "ipsec-debug", false, "log the IPsec negotiation")
	f.BoolVar(&o.PreferredServer, "preferred-server", false,
		"wait for the gateways of other clusters to start the IPsec negotiation")
	names := func(context.Context) ([]string, error) { return strings.Split(drivers.Names(), ", "), nil }
	cli.Complete(c, "cable-driver", names)
	cli.Complete(c, "cable-drivers", names)
	cli.Complete(c, "combined-cable-drivers", func(context.Context) ([]string, error) {
		return slices.DeleteFunc(strings.Split(drivers.Names(), ", "),
			func(name string) bool { return strings.Contains(name, "+") }), nil
	})
	cli.Complete(c, "encryption", func(context.Context) ([]string, error) {
		return []string{join.EncryptionRequired, join.EncryptionOptional}, nil
	})
}
