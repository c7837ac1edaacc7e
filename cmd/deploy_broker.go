package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/globalnet"
	"subctl/internal/printer"
)

const deployBrokerLong = `Make the cluster of the context in use a broker, and write the file that clusters join
with.

A broker is custom resources, roles and admission policies in a namespace; no pod runs
there. Clusters exchange their addresses through it, and each can change nothing but its
own. The same command finishes a deployment that was interrupted, repairs one that was
damaged, and writes a new file when the old one has expired. It also makes the cable
policy "default", which decides for pairs of clusters that no other policy matches; an
existing one changes only if --cable-driver is given.

The file carries a token, with which clusters can join until it expires, and the
pre-shared key of the cables: whoever has it can join. Keep it like a password.`

const deployBrokerExample = `  # make the cluster of context "hub" the broker
  subctl deploy-broker --context hub

  # clusters reach its API server at another address than this machine does
  subctl deploy-broker --context hub --broker-url https://hub.example.com:6443

  # see what would be applied
  subctl deploy-broker --context hub --dry-run`

// deployBrokerOptions is what the command line says.
type deployBrokerOptions struct {
	invite        inviteOptions
	components    []string
	globalnet     bool
	globalnetCIDR string
	globalnetSize uint
	cableDriver   string
	pskFrom       string
	dryRun        bool
	format        *printer.Flag
	flags         *pflag.FlagSet

	// Known after check.
	render broker.Options
	from   *broker.JoinFile
	// Known after plan.
	was string // the driver of the default policy; empty if there is none
}

func newDeployBroker(g *globals) *cobra.Command {
	o := &deployBrokerOptions{}
	c := &cobra.Command{
		Use:     "deploy-broker",
		Short:   "Make a cluster the broker",
		Long:    deployBrokerLong,
		Example: deployBrokerExample,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), g) },
	}
	o.flags = c.Flags()
	o.invite.addFlags(o.flags)
	f := o.flags
	f.StringSliceVar(&o.components, "components", []string{broker.Connectivity}, "what clusters install: "+broker.Connectivity)
	f.BoolVar(&o.globalnet, "globalnet", false, "record that clusters get globally unique addresses; this version does not implement them, and refuses clusters whose networks overlap")
	f.StringVar(&o.globalnetCIDR, "globalnet-cidr-range", globalnet.DefaultRange, "network that those addresses are cut from")
	f.UintVar(&o.globalnetSize, "globalnet-cluster-size", globalnet.DefaultClusterSize, "how many of them a cluster gets; rounded up to a power of two")
	f.StringVar(&o.cableDriver, "cable-driver", drivers.Default, "driver of the cable policy \""+v1alpha1.DefaultCablePolicy+"\", which decides where no other does: "+drivers.Names()+"; an existing broker keeps its driver unless this flag is given")
	f.StringVar(&o.pskFrom, "ipsec-psk-from", "", "join file to take the pre-shared key from (default: the one that is replaced, else a new key)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be applied, and change nothing")
	o.format = output(c, printer.YAML, printer.JSON)
	completeDrivers(c)
	return c
}

func (o *deployBrokerOptions) run(ctx context.Context, g *globals) error {
	if err := o.check(); err != nil {
		return usageError(err)
	}
	cfg, err := g.restConfig()
	if err != nil {
		return err
	}
	report := g.progress()
	if o.globalnet {
		report.Warn("this version records the globalnet setting, but does not program globalnet yet: clusters can join only if their networks are distinct")
	}
	report.Step("looking at the cluster at %s", cfg.Host)
	c, err := g.client(ctx)
	if err != nil {
		return err
	}
	psk, origin, err := o.plan(ctx, c, cfg)
	if err != nil {
		return err
	}
	report.Done("it can be a broker; the pre-shared key is %s", origin)
	if o.render.DefaultPolicy != "" && o.was != "" && o.was != o.render.DefaultPolicy {
		report.Warn("the cable policy %s changes from %s to %s: clusters that no other policy matches change their cable", v1alpha1.DefaultCablePolicy, o.was, o.render.DefaultPolicy)
	}
	if o.dryRun {
		if origin == broker.NewPSK {
			report.Warn("not printed is the annotation %s, of the key that is made then", broker.PSKFingerprintAnnotation)
		}
		return o.print(g, c, origin)
	}
	objects, err := broker.Render(o.render)
	if err != nil {
		return err
	}
	report.Step("deploying the broker in namespace %s", o.render.Namespace)
	if err := broker.Apply(ctx, c, objects); err != nil {
		return err
	}
	report.Done("deployed the broker in namespace %s", o.render.Namespace)
	return o.invite.write(ctx, g, c, cfg, psk)
}

// plan asks the cluster whether it can be a broker, and decides on the
// pre-shared key.
func (o *deployBrokerOptions) plan(ctx context.Context, c client.Client, cfg *rest.Config) (broker.Secret, string, error) {
	objects, err := broker.Render(o.render)
	if err != nil {
		return nil, "", err
	}
	if err := broker.Preflight(ctx, c, objects); err != nil {
		return nil, "", err
	}
	state, err := broker.Look(ctx, c, o.render.Namespace)
	if err != nil {
		return nil, "", err
	}
	sources := broker.PSKSources{From: o.from, URL: o.invite.address(cfg), Namespace: o.render.Namespace}
	sources.Existing, sources.Reason = broker.ReadOldJoinFile(o.invite.file)
	if errors.Is(sources.Reason, fs.ErrNotExist) {
		sources.Reason = nil
	}
	psk, origin, err := state.ChoosePSK(sources)
	if err := errors.Join(state.CheckChange(o.render), err); err != nil {
		return nil, "", err
	}
	o.render.PSKFingerprint = broker.Fingerprint(psk)
	return psk, origin, o.planDriver(ctx, c, state.Broker)
}

// planDriver keeps the driver of a broker that is there, and its policy, unless the
// command line says another.
func (o *deployBrokerOptions) planDriver(ctx context.Context, c client.Client, b *v1alpha1.Broker) error {
	if b != nil && !o.flags.Changed("cable-driver") {
		o.render.CableDriver, o.render.DefaultPolicy = b.Spec.CableDriver, ""
		return nil
	}
	var err error
	o.was, err = broker.DefaultDriver(ctx, c, o.render.Namespace)
	if !o.flags.Changed("cable-driver") && (err != nil || o.was != "") {
		o.render.DefaultPolicy = "" // a deployment that was interrupted, or a person, has made it
		return nil
	}
	return err
}

// check says everything that is wrong with the command line, without asking a
// cluster.
func (o *deployBrokerOptions) check() error {
	errs := []error{o.invite.check(), o.checkComponents()}
	o.render = broker.Options{Namespace: o.invite.namespace, Components: o.components, CableDriver: o.cableDriver, DefaultPolicy: cable.Canonical(o.cableDriver)}
	if o.globalnet {
		info, err := globalnet.Parse(o.globalnetCIDR, o.globalnetSize)
		o.render.Globalnet = info
		errs = append(errs, err)
	} else {
		for _, name := range []string{"globalnet-cidr-range", "globalnet-cluster-size"} {
			if o.flags.Changed(name) {
				errs = append(errs, fmt.Errorf("--%s says how globalnet is, which is off: add --globalnet", name))
			}
		}
	}
	if _, err := drivers.Parse(o.cableDriver); err != nil {
		errs = append(errs, fmt.Errorf("--cable-driver: %w", err))
	}
	if o.pskFrom != "" {
		file, err := broker.ReadOldJoinFile(o.pskFrom)
		o.from = file
		errs = append(errs, err)
	}
	if o.flags.Changed("output") && !o.dryRun {
		errs = append(errs, errors.New("--output is the format of --dry-run: add that"))
	}
	return errors.Join(errs...)
}

func (o *deployBrokerOptions) checkComponents() error {
	var errs []error
	for _, name := range o.components {
		switch name {
		case broker.Connectivity:
		case broker.ServiceDiscovery:
			errs = append(errs, fmt.Errorf("component %s is not in this version: leave it out", name))
		default:
			errs = append(errs, fmt.Errorf("there is no component %q: use %s", name, broker.Connectivity))
		}
	}
	if !slices.Contains(o.components, broker.Connectivity) && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("no component is left: use %s", broker.Connectivity))
	}
	return errors.Join(errs...)
}

// print prints what would be applied. Of a key that is not made yet there is no
// fingerprint.
func (o *deployBrokerOptions) print(g *globals, c client.Client, origin string) error {
	if origin == broker.NewPSK {
		o.render.PSKFingerprint = ""
	}
	objects, err := broker.Render(o.render)
	if err != nil {
		return err
	}
	return printObjects(g.Out, c.Scheme(), o.format.Format(), objects)
}
