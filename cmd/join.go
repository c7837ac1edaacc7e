package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"subctl/broker"
	"subctl/cable/drivers"
	"subctl/cluster"
	"subctl/cluster/join"
	"subctl/internal/printer"
)

const joinLong = `Join the cluster of the context in use to a broker, with the file that deploy-broker
wrote there.

Everything is checked before anything is changed, on either cluster. Then the cluster's
ID is claimed on the broker, the agents are installed in namespace submariner-operator,
and a node is labelled as gateway if none is. What is done already is left alone, so the
same command finishes a join that was interrupted, and repairs one that was damaged.

Pod and Service networks are discovered; where that is a guess, subctl says so. Two
clusters that use the same addresses cannot be connected.

The cluster needs Kubernetes 1.25 or later, the broker 1.30.`

const joinExample = `  # join the cluster of context "west"
  subctl join broker-info.subm --context west --clusterid west --image registry.example/subctl:v1

  # give the networks instead of having them discovered, and choose the gateways
  subctl join broker-info.subm --clustercidr 10.244.0.0/16 --servicecidr 10.96.0.0/12 --gateway-nodes gw-1,gw-2

  # see what would be done
  subctl join broker-info.subm --dry-run`

// joinOptions is what the command line says.
type joinOptions struct {
	join.Options
	file        string
	brokerURL   string
	checkBroker bool
	dryRun      bool
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
	f := c.Flags()
	f.StringVar(&o.ClusterID, "clusterid", "", "name of this cluster among all clusters of the broker (default: its name in the kubeconfig)")
	f.StringSliceVar(&o.ClusterCIDRs, "clustercidr", nil, "pod networks, such as 10.244.0.0/16 (default: discovered)")
	f.StringSliceVar(&o.ServiceCIDRs, "servicecidr", nil, "Service networks, such as 10.96.0.0/12 (default: discovered)")
	o.addDriverFlags(c)
	f.StringToStringVar(&o.Labels, "cluster-labels", nil, "labels of this cluster, for cable policies to select by")
	f.StringSliceVar(&o.ClusterSets, "clusterset", nil, `clustersets to be in (default: the one called "default")`)
	f.BoolVar(&o.NAT, "natt", o.NAT, "gateways are behind address translation (see docs/nat.md)")
	f.BoolVar(&o.LabelGateway, "label-gateway", o.LabelGateway, "label a node as gateway if there is none")
	f.StringSliceVar(&o.GatewayNodes, "gateway-nodes", nil, "nodes to label as gateways (default: the first worker by name, if there is no gateway)")
	f.BoolVar(&o.HealthCheck, "health-check", o.HealthCheck, "ping the other gateways through the cable")
	f.Uint64Var(&o.HealthCheckInterval, "health-check-interval", o.HealthCheckInterval, "seconds between pings")
	f.Uint64Var(&o.HealthCheckMaxLoss, "health-check-max-packet-loss-count", o.HealthCheckMaxLoss, "lost pings in a row after which a connection is down")
	f.StringVar(&o.Image, "image", "", "image of the agents (default: the one of this version of subctl)")
	f.BoolVar(&o.MultiActiveGateway, "multi-active-gateway", false, "let every gateway node carry traffic (not in this version)")
	f.StringVar(&o.brokerURL, "broker-url", "", "address of the broker's API server, https://host:port (default: that in FILE)")
	f.BoolVar(&o.checkBroker, "check-broker-certificate", true, "check the certificate of the broker's API server")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be written, on broker and cluster, and change nothing")
	f.BoolVar(&o.wait, "wait", true, "wait until the cluster is connected")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait")
	o.format = output(c, printer.YAML, printer.JSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.Changed("output") && !o.dryRun {
			return usageError(errors.New("--output is the format of --dry-run: add that"))
		}
		o.file, o.InsecureBroker = args[0], !o.checkBroker
		return o.run(c.Context(), g)
	}
	return c
}

func oneJoinFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("join wants one file, %s by default, as subctl deploy-broker wrote it: subctl join FILE", broker.JoinFileName)
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
	if o.dryRun {
		found, err := op.DryRun(ctx)
		if err != nil {
			return err
		}
		return printDryRun(g.Out, o.format.Format(), found, op)
	}
	if err := op.Run(ctx); err != nil {
		return err
	}
	if !o.wait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return op.Wait(ctx)
}

// check says everything that is wrong with the command line and the file,
// without asking a cluster.
func (o *joinOptions) check(g *globals) (*broker.JoinFile, error) {
	if o.ClusterID == "" {
		name, err := g.clusterName()
		if err != nil {
			return nil, err
		}
		o.ClusterID = join.SuggestID(name)
	}
	said := o.Validate()
	if o.brokerURL != "" {
		address, err := broker.ParseURL(o.brokerURL)
		if err != nil {
			said = errors.Join(said, fmt.Errorf("--broker-url %w", err))
		}
		o.brokerURL = address
	}
	file, err := broker.ReadJoinFile(o.file, g.now())
	if said != nil {
		return nil, usageError(errors.Join(said, err))
	}
	if err == nil && o.brokerURL != "" {
		file.BrokerURL = o.brokerURL
	}
	return file, err
}

// plan asks both clusters, and decides what to do.
func (o *joinOptions) plan(ctx context.Context, g *globals, file *broker.JoinFile) (*join.Operation, error) {
	report := g.progress()
	report.Step("looking at this cluster, and at the broker at %s", file.BrokerURL)
	member, err := g.memberSide(ctx)
	hub, err2 := g.brokerSide(ctx, file.RESTConfig(o.InsecureBroker))
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	facts, err := join.ReadFacts(ctx, member, o.Options)
	brokerFacts, err2 := join.ReadBrokerFacts(ctx, hub, file.BaseNamespace(), o.ClusterID, o.Sets())
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	plan, err := join.MakePlan(o.Options, file, facts, brokerFacts)
	if err != nil {
		return nil, err
	}
	report.Done("this cluster, %s, can be joined to the broker", o.ClusterID)
	return &join.Operation{Member: member, Broker: hub, File: file, Plan: plan, Report: report}, nil
}

// addDriverFlags declares the flags about cables: which there are, and how they are
// set up.
func (o *joinOptions) addDriverFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.CableDriver, "cable-driver", "", "driver where no cable policy decides: "+drivers.Names()+
		" (default: the broker's choice, else "+drivers.Default+")")
	f.StringSliceVar(&o.CableDrivers, "cable-drivers", nil, "cable drivers to offer for cable policies to choose from (default: all that the gateways can run)")
	f.StringSliceVar(&o.CombinedCableDrivers, "combined-cable-drivers", nil, "two drivers to offer as one cable, such as vxlan,ipsec: VXLAN inside IPsec")
	f.StringVar(&o.CableDriverConfig, "cable-driver-config", "", "ConfigMap with settings of the cable drivers: NAME, in namespace "+cluster.Namespace)
	f.StringVar(&o.CableDriverConfigPath, "cable-driver-config-path", "", "where that ConfigMap is mounted in the gateway's pods (default "+cluster.DefaultConfigPath+")")
	f.IntVar(&o.NATTPort, "nattport", o.NATTPort, "UDP port of IPsec")
	f.BoolVar(&o.ForceUDPEncaps, "force-udp-encaps", false, "put IPsec inside UDP even where no address is translated")
	f.BoolVar(&o.IPsecDebug, "ipsec-debug", false, "log what IPsec negotiates")
	f.BoolVar(&o.PreferredServer, "preferred-server", false, "let the gateways of other clusters begin to negotiate IPsec, unless they are to wait too")
	names := func(context.Context) ([]string, error) { return strings.Split(drivers.Names(), ", "), nil }
	complete(c, "cable-driver", names)
	complete(c, "cable-drivers", names)
}

// printDryRun prints what join would write: as one JSON object, or as YAML
// documents each of which says where it goes.
func printDryRun(w io.Writer, format printer.Format, d *join.DryRun, op *join.Operation) error {
	if format == printer.JSON {
		return printer.Encode(w, format, d)
	}
	err := printDocuments(w, "broker: created at "+op.Broker.URL, d.Broker)
	for _, obj := range d.Cluster {
		how := "applied"
		if obj.GetKind() == "Node" {
			how = "patched"
		}
		err = errors.Join(err, printDocuments(w, "cluster: "+how+" at "+op.Member.URL, []*unstructured.Unstructured{obj}))
	}
	return err
}
