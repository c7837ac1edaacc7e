package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/drivers"
	"subctl/internal/cli"
	"subctl/internal/guard"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/policy"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const cablePolicyAddLong = `Create a cable policy, from flags or from a file.

A selector is a list of requirements, separated by commas. It selects the clusters whose
labels meet all requirements: env=production, env!=production (also env: !production), "tier
in (a,b)", "tier notin (a,b)", tier, !tier. Left and right are the two clusters of a pair, in
either order. An empty selector selects every cluster. The ID of a cluster is its label
submariner-io/clusterID.

A policy is shared as a whole in all clustersets of the member, or only in --clusterset: the
other clusters there read the labels and IDs that it names, and its settings.

--cable-config names a ConfigMap in namespace submariner-operator (on a broker, in the
namespace of the clusterset). Its key CableCustomConfig is copied into the policy, so that
both gateways of a cable can read it: it must not contain secrets.

With --encryption required, the pairs that the policy matches never get a cable without
encryption, even if another policy decides: they get no cable instead.

A file contains objects as for kubectl and as printed by it, in YAML or JSON: policies, Lists
of them, and the ConfigMaps that they name, which are created too. "kubectl get -o yaml" and
"--dry-run -o yaml" print such files. kubectl itself does not accept this short form of a
policy, which -f does:

  kind: CablePolicies
  metadata:
    name: secure
  spec:
    leftClusterSelector:
      env: production
    rightClusterSelector:
      env: !production
    cableDriver:
      name: ipsec

On a broker, policies are signed with the administrator's key, which is in the join file:
see --broker-info. A cluster signs its own policies itself.

All mistakes are reported before anything is written. The pairs of clusters whose cable
changes are printed on stdout. Gateways bring up the new cable of a pair before they move
its traffic.

A change that leaves a pair without a cable, or removes its encryption, is refused unless
--force is set; with --dry-run, the exit code is then 3. The command then reads the clusters of
the kubeconfig until all pairs use their new cable, unless --wait=false is set; if they do not in
time, the exit code is 3.`

const cablePolicyAddExample = `  # IPsec between production clusters and all clusters that are not for tests
  subctl cable-policy add encrypted --cable-driver ipsec \
    --left-cluster-selector env=production --right-cluster-selector 'env!=test'

  # show what would change, and what would be written
  subctl cable-policy add -f secure.yaml --dry-run
  subctl cable-policy add -f secure.yaml --dry-run -o yaml

  # change a policy, and do not wait until all pairs use their new cable
  subctl cable-policy add --replace default --cable-driver wireguard --wait=false --context hub`

type cablePolicyAdd struct {
	policyOptions
	guard.Guard
	name, left, right, driver, config, encryption string

	files   []string
	replace bool
	format  *printer.Flag
}

func newCablePolicyAdd(g *globals) *cobra.Command {
	o := &cablePolicyAdd{policyOptions: policyOptions{globals: g}, Guard: guard.New(g.ErrOut, g.AllTargets)}
	c := &cobra.Command{
		Use:     "add [NAME]",
		Aliases: []string{"create"},
		Short:   "Create a cable policy",
		Long:    cablePolicyAddLong,
		Example: cablePolicyAddExample,
		Args:    g.optionalName("name"),
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.policyOptions.addFlags(c)
	o.addSigning(c)
	o.addSet(c, "clusterset of the policy (default: all clustersets of the member; on a broker, \"default\")")
	f := c.Flags()
	f.StringVar(&o.name, "name", "",
		"name of the policy, instead of the argument; the policy \"default\" decides where no other policy matches")
	f.StringVar(&o.left, "left-cluster-selector", "", "labels of one cluster of a pair")
	f.StringVar(&o.right, "right-cluster-selector", "", "labels of the other cluster of a pair")
	f.StringVar(&o.driver, "cable-driver", "", "cable driver of the pairs of clusters")
	f.StringVar(&o.config, "cable-config", "", "ConfigMap with settings of the driver")
	f.StringVar(&o.encryption, "encryption", "",
		"required: never connect the pairs without encryption, even where another policy decides")
	f.StringArrayVarP(&o.files, "filename", "f", nil,
		"file with policies and ConfigMaps, instead of the flags above; - for stdin; may be repeated")
	f.BoolVar(&o.replace, "replace", false, "replace the policy of this name if it exists")
	o.Guard.AddFlags(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	completeDrivers(c)
	cli.Complete(c, "name", o.ownNames) // to replace one
	cli.Complete(c, "cable-config", o.settings)
	c.ValidArgsFunction = cli.CompleteArgument(o.ownNames)
	cli.Complete(c, "encryption",
		func(context.Context) ([]string, error) { return []string{string(submarinerv1.EncryptionRequired)}, nil })
	return c
}

func (o *cablePolicyAdd) run(ctx context.Context) error {
	m, err := o.read()
	if err != nil {
		return err
	}
	all, c, err := o.open(ctx)
	if err != nil {
		return err
	}
	if err := all.CheckMakers(); err != nil {
		return err
	}
	s, err := o.supply(ctx, c, all, m)
	errs := []error{err}
	policies := m.Policies
	for i, p := range policies {
		policies[i], err = look.WithSettings(ctx, s, p)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, r := range all.Review(policies) {
		look.ReportReview(o.progress(), r)
		if all.OnBroker() && len(configMapsOf(r.Policy)) > 0 {
			o.progress().Warn(
				"policy %s has a copy of its ConfigMap, which is not updated on a broker: after a change of the ConfigMap, use --replace",
				r.Policy.Name)
		}
	}
	if err := o.sign(ctx, c, all, policies, o.DryRun); err != nil {
		return err
	}
	change := impact.Of(all, all.With(policies))
	if err := o.printChange(o.format.Format(), o.DryRun, change, c.Scheme(),
		append(s.objects(), policyObjects(policies)...)); err != nil {
		return err
	}
	if err := o.Accept(change); err != nil || o.DryRun {
		return err
	}
	wait, err := o.Await(ctx, all, change)
	if err == nil {
		err = s.write(ctx, o.globals)
	}
	if err == nil {
		err = o.write(ctx, c, all, policies)
	}
	if err != nil {
		return err
	}
	return wait(ctx)
}

// read returns the policies that the command line specifies, or all its mistakes.
func (o *cablePolicyAdd) read() (policy.Manifest, error) {
	if len(o.files) > 0 {
		return o.readFiles()
	}
	var m policy.Manifest
	if o.name == "" && o.driver == "" {
		return m, cli.UsageError(errors.New("specify a policy with NAME and --cable-driver, or a file with -f FILE"))
	}
	p := &v1alpha1.CablePolicies{
		ObjectMeta:         metav1.ObjectMeta{Name: o.name},
		ConnectionPolicies: make([]v1alpha1.CablePolicySpec, 1),
	}
	r := &p.ConnectionPolicies[0]
	var errs []error
	if o.name == "" {
		errs = append(errs, errors.New("the name of the policy is missing: subctl cable-policy add NAME"))
	} else if err := policy.CheckName(o.name); err != nil {
		errs = append(errs, errors.New(strings.TrimPrefix(err.Error(), "metadata.name: ")))
	}
	for _, s := range []struct {
		flag, text string
		into       *v1alpha1.ClusterSelector
	}{{"left", o.left, &r.LeftClusterSelector}, {"right", o.right, &r.RightClusterSelector}} {
		parsed, err := policy.ParseSelector(s.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s-cluster-selector: %w", s.flag, err))
		}
		*s.into = parsed
	}
	if r.CableDriver = o.driver; o.driver == "" {
		errs = append(errs, fmt.Errorf("--cable-driver is missing: use one of %s", drivers.Names()))
	} else if err := policy.CheckDriver(o.driver); err != nil {
		errs = append(errs, fmt.Errorf("--cable-driver: %w", err))
	}
	if o.config+o.encryption != "" {
		r.CableOptions = &v1alpha1.CableOptions{
			Metadata:   v1alpha1.CableOptionsSource{Name: o.config},
			Encryption: submarinerv1.Encryption(o.encryption),
		}
	}
	errs = append(errs, o.checkEncryption())
	if err := errors.Join(errs...); err != nil {
		return m, cli.UsageError(err)
	}
	m.Policies = append(m.Policies, p)
	return m, nil
}

// checkEncryption returns an error if --encryption has an unknown value, or if the driver does
// not encrypt.
func (o *cablePolicyAdd) checkEncryption() error {
	d := drivers.Find(o.driver)
	switch {
	case o.encryption == "":
		return nil
	case o.encryption != string(submarinerv1.EncryptionRequired):
		return fmt.Errorf("--encryption %q is not a value: use %s, or omit it", o.encryption,
			submarinerv1.EncryptionRequired)
	case d != nil && !d.Properties().Encrypts:
		return fmt.Errorf("--encryption %s: %s does not encrypt: choose another driver with --cable-driver",
			o.encryption, d.Name())
	}
	return nil
}

// policyObjects returns policies as objects.
func policyObjects(policies []*v1alpha1.CablePolicies) []client.Object {
	var out []client.Object
	for _, p := range policies {
		out = append(out, p)
	}
	return out
}

// write creates or changes the policies on the API server.
func (o *cablePolicyAdd) write(
	ctx context.Context,
	c client.Client,
	all *catalog.Catalog,
	policies []*v1alpha1.CablePolicies,
) error {
	for _, p := range policies {
		did := "created"
		err := error(nil)
		if all.Replaces(p) != nil {
			did = "changed"
			err = changePolicy(ctx, c, p)
		} else {
			err = c.Create(ctx, p.DeepCopy(), client.FieldOwner(kube.FieldOwner))
		}
		if err != nil {
			return fmt.Errorf("writing cable policy %s: %w", p.Name, err)
		}
		o.progress().Done("%s cable policy %s on %s, for clusterset %s", did, p.Name, catalog.MakerName(all.Keeper),
			strings.Join(all.SetsOf(p), ", "))
	}
	return nil
}

// changePolicy changes an existing policy to p. It keeps the labels and annotations that
// others have added.
func changePolicy(ctx context.Context, c client.Client, p *v1alpha1.CablePolicies) error {
	var was v1alpha1.CablePolicies
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), &was); err != nil {
		return err
	}
	delete(was.Labels, submarinerv1.ClusterSetLabel)
	for k, v := range p.Labels {
		metav1.SetMetaDataLabel(&was.ObjectMeta, k, v)
	}
	if signature := p.Annotations[submarinerv1.SignatureAnnotation]; signature != "" {
		metav1.SetMetaDataAnnotation(&was.ObjectMeta, submarinerv1.SignatureAnnotation, signature)
	}
	was.ConnectionPolicies = p.ConnectionPolicies
	return c.Update(ctx, &was, client.FieldOwner(kube.FieldOwner))
}
