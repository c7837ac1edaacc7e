package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/printer"
	"subctl/internal/progress"
	"subctl/policy"
)

const cablePolicyAddLong = `Make a cable policy, from flags or from a file.

A selector is a list of requirements, separated by commas, and selects the clusters whose
labels meet all of them: env=production, env!=production (also env: !production), "tier in
(a,b)", "tier notin (a,b)", tier, !tier. Left and right are the two ends of a cable, in
either order; an empty selector selects every cluster. Each cluster has its own ID as the
label submariner-io/clusterID.

--cable-config names a ConfigMap in namespace submariner-operator (on a broker, in that of
the clusterset). Its key CableCustomConfig is copied into the policy, so that both ends of
a cable have it: it must not hold secrets.

A file holds objects as kubectl takes them, or this short form:

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

Mistakes are reported before anything is written. The pairs of clusters whose cable
changes are printed on stdout. Gateways bring up the new cable of a pair before traffic
leaves the old one.`

const cablePolicyAddExample = `  # IPsec between production clusters and all others, if the others are not for tests
  subctl cable-policy add --name secure --cable-driver ipsec \
    --left-cluster-selector env=production --right-cluster-selector 'env!=test'

  # see what it would change, and what would be written
  subctl cable-policy add -f secure.yaml --dry-run
  subctl cable-policy add -f secure.yaml --dry-run -o yaml

  # change a policy
  subctl cable-policy add --replace --name default --cable-driver wireguard`

type cablePolicyAdd struct {
	policySite
	name, left, right, driver, config string
	file                              string
	replace, dryRun                   bool
	format                            *printer.Flag
}

func newCablePolicyAdd(g *globals) *cobra.Command {
	o := &cablePolicyAdd{policySite: policySite{globals: g}}
	c := &cobra.Command{
		Use:     "add",
		Aliases: []string{"create"},
		Short:   "Make a cable policy",
		Long:    cablePolicyAddLong,
		Example: cablePolicyAddExample,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.policySite.addFlags(c)
	o.addSet(c, "clusterset that the policy is for (default: all that the member is in; on a broker, the one called default)")
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "name of the policy; \"default\" decides where no other policy matches")
	f.StringVar(&o.left, "left-cluster-selector", "", "labels of the clusters at one end")
	f.StringVar(&o.right, "right-cluster-selector", "", "labels of the clusters at the other end")
	f.StringVar(&o.driver, "cable-driver", "", "cable driver for the pairs of clusters")
	f.StringVar(&o.config, "cable-config", "", "ConfigMap with settings of the driver")
	f.StringVarP(&o.file, "filename", "f", "", "file with policies, instead of flags; - for stdin")
	f.BoolVar(&o.replace, "replace", false, "change the policy of this name, if there is one")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would change, and change nothing")
	o.format = output(c, printer.Table, printer.JSON, printer.YAML)
	completeDrivers(c)
	return c
}

func (o *cablePolicyAdd) run(ctx context.Context) error {
	policies, err := o.read()
	if err != nil {
		return err
	}
	d, err := o.open(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range policies {
		errs = append(errs, d.fit(p, o.set), d.checkTaken(p, o.replace), d.copySettings(ctx, p))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	d.warn(o.progress(), policies)
	change := d.compare(d.with(policies))
	if o.format.Format().Structured() {
		err = printObjects(o.Out, d.client.Scheme(), o.format.Format(), d.objects(policies))
	} else {
		err = change.print(o.Out, o.progress())
	}
	if err != nil || o.dryRun {
		return err
	}
	return d.write(ctx, o.progress(), policies)
}

// read returns the policies that the command line says, or everything that is wrong
// with it.
func (o *cablePolicyAdd) read() ([]*v1alpha1.CablePolicies, error) {
	if o.file != "" {
		return o.readFile()
	}
	if o.name == "" && o.driver == "" {
		return nil, usageError(errors.New("a policy wants --name and --cable-driver, or a file: -f FILE"))
	}
	p := &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{Name: o.name}, ConnectionPolicies: make([]v1alpha1.CablePolicySpec, 1)}
	r := &p.ConnectionPolicies[0]
	var errs []error
	if err := policy.CheckName(o.name); err != nil {
		errs = append(errs, fmt.Errorf("--name: %s", strings.TrimPrefix(err.Error(), "metadata.name: ")))
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
		errs = append(errs, errors.New("--cable-driver is missing"))
	} else if err := policy.CheckDriver(o.driver); err != nil {
		errs = append(errs, fmt.Errorf("--cable-driver: %w", err))
	}
	if o.config != "" {
		r.CableOptions = &v1alpha1.CableOptions{Metadata: v1alpha1.CableOptionsSource{Name: o.config}}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, usageError(err)
	}
	return []*v1alpha1.CablePolicies{p}, nil
}

// objects are policies as they are written.
func (d *policyDesk) objects(policies []*v1alpha1.CablePolicies) []client.Object {
	var out []client.Object
	for _, p := range policies {
		out = append(out, p)
	}
	return out
}

// with returns the policies as they will be, once these are shared.
func (d *policyDesk) with(policies []*v1alpha1.CablePolicies) []*v1alpha1.CablePolicies {
	then := slices.DeleteFunc(slices.Clone(d.policies), func(was *v1alpha1.CablePolicies) bool {
		return slices.ContainsFunc(policies, func(p *v1alpha1.CablePolicies) bool {
			return d.maker(was) == d.id && was.SharedName() == p.Name && d.overlap(was, p)
		})
	})
	for _, p := range policies {
		p = p.DeepCopy()
		p.Status.ClusterSets = d.setsOf(p)
		then = append(then, p)
	}
	return then
}

// write makes the policies what the API server holds.
func (d *policyDesk) write(ctx context.Context, report *progress.Reporter, policies []*v1alpha1.CablePolicies) error {
	for _, p := range policies {
		did, err := "made", error(nil)
		if d.own(p) != nil {
			did, err = "changed", d.change(ctx, p)
		} else {
			err = d.client.Create(ctx, p.DeepCopy(), client.FieldOwner(kube.FieldOwner))
		}
		if err != nil {
			return fmt.Errorf("writing cable policy %s: %w", p.Name, err)
		}
		report.Done("%s cable policy %s on %s, for clusterset %s", did, p.Name, makerName(d.id), strings.Join(d.setsOf(p), ", "))
	}
	return nil
}

// change makes a policy there is what p says. What others have put on it stays.
func (d *policyDesk) change(ctx context.Context, p *v1alpha1.CablePolicies) error {
	var was v1alpha1.CablePolicies
	if err := d.client.Get(ctx, client.ObjectKeyFromObject(p), &was); err != nil {
		return err
	}
	delete(was.Labels, submarinerv1.ClusterSetLabel)
	for k, v := range p.Labels {
		metav1.SetMetaDataLabel(&was.ObjectMeta, k, v)
	}
	was.ConnectionPolicies = p.ConnectionPolicies
	return d.client.Update(ctx, &was, client.FieldOwner(kube.FieldOwner))
}
