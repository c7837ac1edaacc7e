package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable/drivers"
	"subctl/globalnet"
	"subctl/internal/cli"
	"subctl/internal/guard"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/progress"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const deployBrokerLong = `Deploy a broker on the cluster of the current context, and write the join file for clusters.

A broker consists of custom resources, roles and admission policies in a namespace; no pod
runs there. Clusters exchange their addresses through it, and each cluster can change only
its own objects. To finish an interrupted deployment, to repair one, or to write a new join
file after the old one has expired, run the command again. It also creates the cable policy
"default", which decides for pairs of clusters that no other policy matches. Without
--cable-driver, a new policy has the driver with which the cluster has joined before, if it has.
If that policy exists, only --cable-driver changes it. The pairs of clusters whose cable changes
then are printed. A change that leaves a pair without a cable, or removes its encryption, is
refused unless --force is set; with --dry-run, the exit code is then 3. The command then reads the
clusters of the kubeconfig until all pairs use their new cable, unless --wait=false is set; if
they do not in time, the exit code is 3.

The join file contains a token, which expires, the pre-shared key of the cables, and the
administrator's signing key, without which no cluster can become a member: it is nowhere
else. Whoever has the file can join. Protect it like a password, and keep it: subctl invite
writes files for others, each for one cluster.`

const deployBrokerExample = `  # deploy a broker on the cluster of context "hub"
  subctl deploy-broker --context hub

  # clusters reach its API server at a different address than this machine
  subctl deploy-broker --context hub --broker-url https://hub.example.com:6443

  # a load balancer with a certificate for another name
  subctl deploy-broker --context hub --broker-url https://lb.example.com:6443 --broker-tls-server-name hub.example.com

  # clusters that use the same pod and Service networks can join; also on a broker with members
  subctl deploy-broker --context hub --globalnet

  # show what would be applied
  subctl deploy-broker --context hub --dry-run`

// deployBrokerOptions are the options of deploy-broker.
type deployBrokerOptions struct {
	invite     inviteOptions
	sets       []string
	components []string
	// serviceDiscovery is the default of clusters that join.
	serviceDiscovery bool
	globalnet        bool
	globalnetCIDR    string
	globalnetSize    uint
	cableDriver      string
	policiesFrom     string
	pskFrom          string
	signingFrom      string
	guard            guard.Guard
	format           *printer.Flag
	flags            *pflag.FlagSet

	// Known after check.
	render broker.Options
	from   broker.KeySources
	// Known after plan.
	was    string           // the driver of the default policy; empty if there is none
	known  *catalog.Catalog // before the change; nil if nothing changes
	change impact.Change
	// joinAgain are the members that do not know whose policies apply.
	joinAgain []string
	// unreadNodes is set if the range of globalnet could not be compared with the addresses of
	// nodes.
	unreadNodes bool
	// withoutGlobal are the members without a global network, if the broker has globalnet.
	withoutGlobal []string
	// warnings are about the namespaces and the address of the broker.
	warnings []string
	// unsigned reports whether that policy lacks a valid signature, and does not get one.
	unsigned bool
	// deduced reports whether the driver of that policy is the one with which the cluster has
	// joined before.
	deduced bool
}

func newDeployBroker(g *globals) *cobra.Command {
	o := &deployBrokerOptions{guard: guard.New(g.ErrOut, g.AllTargets)}
	c := &cobra.Command{
		Use:     "deploy-broker",
		Short:   "Deploy a broker on a cluster",
		Long:    deployBrokerLong,
		Example: deployBrokerExample,
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), g) },
	}
	cli.Lacks(c, "contexts", "a broker is on one cluster: choose it with --context")
	o.flags = c.Flags()
	o.invite.addFlags(o.flags)
	f := o.flags
	f.BoolVar(&o.serviceDiscovery, "service-discovery", true, "clusters that join export and import Services by name, "+
		"unless their join specifies it; an existing broker keeps its setting unless this flag is set")
	f.StringSliceVar(&o.components, "components", allComponents, "components that clusters install, as in Submariner; "+
		"without "+broker.ServiceDiscovery+", as --service-discovery=false")
	f.StringSliceVar(&o.sets, "clusterset", nil,
		"clustersets to create besides "+submarinerv1.DefaultClusterSet+"; an existing broker keeps its clustersets")
	f.BoolVar(&o.globalnet, "globalnet", false,
		"clusters get global networks, whose addresses are unique among all clusters, so that they may use the same pod and Service networks; an existing broker keeps its setting unless this flag is set")
	f.StringVar(&o.globalnetCIDR, "globalnet-cidr-range", globalnet.DefaultRange,
		"network from which global networks are allocated; an existing broker keeps its range, which can grow, unless this flag is set")
	f.UintVar(&o.globalnetSize, "globalnet-cluster-size", globalnet.DefaultClusterSize,
		"number of addresses of the global network of a cluster that does not choose; rounded up to a power of two; an existing broker keeps its number unless this flag is set")
	f.StringVar(
		&o.cableDriver,
		"cable-driver",
		drivers.Default,
		"driver of the cable policy \""+v1alpha1.DefaultCablePolicy+
			"\", which decides where no other policy matches: "+drivers.Names()+
			"; an existing broker keeps its driver unless this flag is set",
	)
	f.StringVar(&o.policiesFrom, "policies-from", string(v1alpha1.PoliciesFromMembers),
		"whose cable policies apply: members (of the broker and of all clusters) or broker (of the broker only); an existing broker keeps its setting unless this flag is set")
	f.StringVar(&o.pskFrom, "ipsec-psk-from", "",
		"join file with the pre-shared key, - for stdin (default: the file that is replaced, or else a new key)")
	f.StringVar(&o.signingFrom, "signing-key-from", "",
		"join file with the administrator's signing key, - for stdin (default: the file with the pre-shared key)")
	f.BoolVar(&o.guard.DryRun, "dry-run", false, "print the objects without applying them")
	o.guard.AddWait(c)
	f.BoolVar(
		&o.guard.Force,
		"force",
		false,
		"change the policy \""+v1alpha1.DefaultCablePolicy+
			"\" even if pairs of clusters lose their cable or its encryption",
	)
	o.format = cli.Output(c, printer.YAML, printer.JSON)
	completeDrivers(c)
	cli.Complete(c, "policies-from", func(context.Context) ([]string, error) {
		return []string{string(v1alpha1.PoliciesFromMembers), string(v1alpha1.PoliciesFromBroker)}, nil
	})
	cli.Complete(c, "components", func(context.Context) ([]string, error) { return allComponents, nil })
	return c
}

func (o *deployBrokerOptions) run(ctx context.Context, g *globals) error {
	if err := o.check(g.In); err != nil {
		return cli.UsageError(err)
	}
	cfg, err := g.RestConfig()
	if err != nil {
		return err
	}
	report := g.progress()
	report.Step("checking the cluster at %s", cfg.Host)
	c, err := g.Client(ctx)
	if err != nil {
		return err
	}
	o.render.Sequence = g.Now().UnixMilli()
	keys, err := o.plan(ctx, c, cfg, g.Now())
	if err != nil {
		return err
	}
	report.Done("the cluster can host a broker; the pre-shared key is %s; the administrator's key is %s",
		keys.PSKOrigin, keys.AdministratorOrigin)
	o.invite.warnOfAddress(report, cfg)
	refused, err := o.accept(g, report)
	if err != nil {
		return err
	}
	if o.deduced {
		report.Done("the cable policy %s chooses %s, the cable driver with which this cluster has joined before; "+
			"--cable-driver chooses another", v1alpha1.DefaultCablePolicy, o.render.DefaultPolicy)
	}
	if o.unsigned {
		report.Warn(
			"the cable policy %s is not signed with the administrator's key, so clusters refuse it: sign it with --cable-driver %s",
			v1alpha1.DefaultCablePolicy, o.was)
	}
	if o.guard.DryRun {
		return cmp.Or(o.print(g, c, keys), refused)
	}
	if refused != nil {
		return refused
	}
	wait, err := o.await(ctx)
	if err != nil {
		return err
	}
	objects, err := broker.Render(o.render)
	if err != nil {
		return err
	}
	discard, err := o.invite.create()
	if err != nil {
		return err
	}
	defer discard()
	report.Step("deploying the broker in namespace %s", o.render.Namespace)
	// First, so that no policy refuses a member of a broker of an earlier version.
	if err := broker.LetAllAnnounce(ctx, c, o.render.Namespace, g.Now()); err != nil {
		return err
	}
	if err := broker.Apply(ctx, c, objects); err != nil {
		return err
	}
	report.Done("deployed the broker in namespace %s", o.render.Namespace)
	if err := o.invite.write(ctx, g, c, cfg, keys); err != nil {
		return err
	}
	return wait(ctx)
}

// await returns a function that waits until all pairs that change their cable use the new one,
// unless --wait=false is set. It must be called before the change.
func (o *deployBrokerOptions) await(ctx context.Context) (func(context.Context) error, error) {
	switch {
	case o.known == nil:
		return func(context.Context) error { return nil }, nil
	case len(o.joinAgain) > 0: // accept has warned of it
		return func(context.Context) error { return nil }, nil
	}
	return o.guard.Await(ctx, o.known, o.change)
}

// plan checks whether the cluster can host a broker, and chooses the keys.
func (o *deployBrokerOptions) plan(
	ctx context.Context,
	c client.Client,
	cfg *rest.Config,
	now time.Time,
) (broker.Keys, error) {
	objects, err := broker.Render(o.render)
	if err != nil {
		return broker.Keys{}, err
	}
	if err := broker.Preflight(ctx, c, objects); err != nil {
		return broker.Keys{}, err
	}
	if o.warnings, err = broker.Others(ctx, c, objects); err != nil {
		return broker.Keys{}, err
	}
	state, err := broker.LookGlobal(ctx, c, o.render.Namespace, now)
	if err != nil {
		return broker.Keys{}, err
	}
	if err := o.planGlobalnet(ctx, c, state); err != nil {
		return broker.Keys{}, err
	}
	o.invite.addSources(&o.from, cfg)
	keys, err := state.ChooseKeys(o.from)
	if err := errors.Join(state.CheckChange(o.render), err); err != nil {
		return broker.Keys{}, err
	}
	o.render.PSKFingerprint = broker.Fingerprint(keys.PSK)
	o.render.Administrator = keys.Administrator
	if b := state.Broker; b != nil && !o.flags.Changed("policies-from") {
		o.render.PoliciesFrom = b.Spec.PoliciesFrom
	}
	if b := state.Broker; b != nil && o.render.ServiceDiscovery == nil {
		o.render.ServiceDiscovery = b.Spec.ServiceDiscoveryEnabled
	}
	if err := o.planDriver(ctx, c, state.Broker, keys.AdministratorOrigin == broker.NewKey); err != nil ||
		state.Broker == nil {
		return keys, err
	}
	return keys, o.compare(ctx, c, state)
}

// compare computes the pairs of clusters whose cable changes. It returns an error if policies of
// clusters would no longer apply, unless --force is set: a cluster learns of the setting only when
// it joins again, and until then the two clusters of a pair could decide differently.
func (o *deployBrokerOptions) compare(ctx context.Context, c client.Client, state broker.State) error {
	was := state.Broker.Spec.PoliciesFrom.BrokerOnly()
	will := o.render.PoliciesFrom.BrokerOnly()
	if o.render.DefaultPolicy == "" && was == will {
		return nil
	}
	all, err := look.ReadBrokerPolicies(ctx, c, state.Broker)
	if err != nil {
		return err
	}
	then := *all
	if o.render.DefaultPolicy != "" {
		then = *all.With([]*v1alpha1.CablePolicies{broker.DefaultPolicy(o.render.Namespace, o.render.DefaultPolicy)})
	}
	then.BrokerOnly = will
	o.known = all
	o.change = impact.Of(all, &then)
	o.joinAgain = nil
	if was != will {
		o.joinAgain = state.Members
	}
	if others := all.OfOthers(); will && !was && len(others) > 0 && !o.guard.Force {
		return fmt.Errorf(
			"--policies-from %s: these cable policies of clusters would no longer apply: %s: let the broker adopt them (subctl cable-policy adopt), or delete them; to continue nevertheless, add --force",
			v1alpha1.PoliciesFromBroker, words.List(others))
	}
	return nil
}

// accept prints the pairs of clusters whose cable changes, and returns an error if the change is
// refused.
func (o *deployBrokerOptions) accept(g *globals, report *progress.Reporter) (refused, err error) {
	if o.render.DefaultPolicy != "" && o.was != "" && o.was != o.render.DefaultPolicy {
		report.Warn(
			"the cable policy %s changes from %s to %s: pairs of clusters that no other policy matches change their cable",
			v1alpha1.DefaultCablePolicy, o.was, o.render.DefaultPolicy)
	}
	o.warnOfGlobalnet(report)
	for _, w := range o.warnings {
		report.Warn("%s", w)
	}
	if len(o.joinAgain) > 0 {
		report.Warn("whose cable policies apply changes: these clusters apply it once they join again: %s",
			words.List(o.joinAgain))
	}
	if !o.change.Empty() { // on stderr, as stdout has objects or the join file
		if err := look.PrintChange(g.ErrOut, report, o.change); err != nil {
			return nil, err
		}
	}
	return o.guard.Accept(o.change), nil
}

// planDriver keeps the driver and the default policy of an existing broker, unless
// --cable-driver is set. With a new key of the administrator, the policy is signed again.
func (o *deployBrokerOptions) planDriver(ctx context.Context, c client.Client, b *v1alpha1.Broker, newKey bool) error {
	was, signed, err := broker.DefaultDriver(ctx, c, o.render.Namespace, o.render.Administrator.Public())
	o.was = was
	if o.flags.Changed("cable-driver") {
		if err == nil && was == o.render.DefaultPolicy && signed {
			o.render.DefaultPolicy = "" // it is as it should be
		}
		return err
	}
	if b != nil {
		o.render.CableDriver = b.Spec.CableDriver
		o.render.DefaultPolicy = ""
	}
	switch {
	case was != "" && !signed && newKey:
		o.render.DefaultPolicy = was
	case err != nil || was != "": // an interrupted deployment or a person has created it
		o.render.DefaultPolicy = ""
		o.unsigned = was != "" && !signed
	case b == nil:
		return o.deduceDriver(ctx, c)
	}
	return nil
}

// deduceDriver takes the driver of a new broker from the configuration with which its cluster has
// joined before, if there is one that this user may read.
func (o *deployBrokerOptions) deduceDriver(ctx context.Context, c client.Client) error {
	key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName}
	sub, err := kube.Optional(ctx, c, &v1alpha1.Submariner{}, key)
	if err != nil && !kube.Unreadable(err) {
		return err
	}
	if err != nil || sub == nil {
		return nil
	}
	if d := drivers.Find(sub.Spec.CableDriver); d != nil {
		o.render.CableDriver = d.Name()
		o.render.DefaultPolicy = d.Name()
		o.deduced = true
	}
	return nil
}
