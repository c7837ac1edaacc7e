package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/internal/progress"
	"subctl/policy"
)

// fit puts a new policy where it belongs, and says what keeps it from there.
func (d *policyDesk) fit(p *v1alpha1.CablePolicies, set string) error {
	set = cmp.Or(set, p.Labels[submarinerv1.ClusterSetLabel])
	was, ns := p.Namespace, d.namespace(set)
	p.Namespace = ns
	if set != "" && !slices.Contains(d.sets, set) {
		return fmt.Errorf("%s is not in clusterset %q: it is in %s", makerName(d.id), set, strings.Join(d.sets, ", "))
	}
	if was != "" && was != ns {
		return fmt.Errorf("policy %s is for namespace %s, but cable policies of %s are in %s: leave the namespace out", p.Name, was, makerName(d.id), ns)
	}
	if set != "" && !d.onBroker() {
		metav1.SetMetaDataLabel(&p.ObjectMeta, submarinerv1.ClusterSetLabel, set)
	}
	return nil
}

// setsOf are the clustersets in which a policy of ours will count.
func (d *policyDesk) setsOf(p *v1alpha1.CablePolicies) []string {
	if d.onBroker() {
		return slices.DeleteFunc(slices.Clone(d.sets), func(s string) bool { return d.namespace(s) != p.Namespace })
	}
	if set := p.Labels[submarinerv1.ClusterSetLabel]; set != "" {
		return []string{set}
	}
	return d.sets
}

// overlap says whether a policy there is, and one that was fitted, are for one
// clusterset.
func (d *policyDesk) overlap(was, p *v1alpha1.CablePolicies) bool {
	if d.maker(was) == d.id && !d.onBroker() {
		return true // one object, whatever clustersets it is for
	}
	return slices.ContainsFunc(d.setsOf(p), func(s string) bool { return slices.Contains(was.ClusterSets(), s) })
}

// own returns the policy made here that has the place of a fitted one; nil if there is
// none.
func (d *policyDesk) own(p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	for _, was := range d.policies {
		if d.maker(was) == d.id && was.SharedName() == p.Name && was.Namespace == p.Namespace {
			return was
		}
	}
	return nil
}

// checkTaken says who has the name of a policy already.
func (d *policyDesk) checkTaken(p *v1alpha1.CablePolicies, replace bool) error {
	for _, was := range d.policies {
		maker := d.maker(was)
		if was.SharedName() != p.Name || !d.overlap(was, p) || maker == d.id && replace {
			continue
		}
		if maker == d.id {
			return fmt.Errorf("there is a cable policy %s already, made here: change it with --replace, or choose another name", p.Name)
		}
		return fmt.Errorf("there is a cable policy %s already, made by %s: change it there, or choose another name", p.Name, makerName(maker))
	}
	return nil
}

// copySettings copies the ConfigMaps that a policy names into it, and says what is
// wrong with them.
func (d *policyDesk) copySettings(ctx context.Context, p *v1alpha1.CablePolicies) error {
	var errs []error
	for i := range p.ConnectionPolicies {
		o := p.ConnectionPolicies[i].CableOptions
		if o == nil || o.Metadata.Name == "" {
			continue
		}
		name := o.Metadata.Name
		if ns := o.Metadata.Namespace; ns != "" && ns != p.Namespace {
			errs = append(errs, fmt.Errorf("ConfigMap %s is in namespace %s, but settings of cable policies of %s are in %s: put it there", name, ns, makerName(d.id), p.Namespace))
			continue
		}
		o.Metadata.Namespace = p.Namespace
		var cm corev1.ConfigMap
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &cm); err != nil {
			if apierrors.IsNotFound(err) {
				err = errors.New("there is none: make it first")
			}
			errs = append(errs, fmt.Errorf("reading ConfigMap %s in namespace %s: %w", name, p.Namespace, err))
			continue
		}
		text, err := cable.ConfigText(cm.Data)
		if err == nil && strings.TrimSpace(text) == "" {
			err = fmt.Errorf("it has no settings: they go under the key %s", v1alpha1.CableCustomConfig)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap %s in namespace %s: %w", name, p.Namespace, err))
			continue
		}
		o.Data = map[string]string{v1alpha1.CableCustomConfig: text}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, line := range lines(policy.Check(p)) {
		errs = append(errs, fmt.Errorf("policy %s: %s", p.Name, line))
	}
	return errors.Join(errs...)
}

// warn says what new policies match now, and what stands in their way.
func (d *policyDesk) warn(report *progress.Reporter, policies []*v1alpha1.CablePolicies) {
	then := d.with(policies)
	for _, p := range policies {
		alone := p.DeepCopy()
		alone.Status.ClusterSets = d.setsOf(p)
		matched := 0
		lost, lacking := map[string]int{}, map[string][]string{}
		next, stop := d.decisions(then)
		for pair, would := range policy.Compile([]*v1alpha1.CablePolicies{alone}).Pairs(d.clusters) {
			is := next()
			if would.Policy != p.Name {
				continue
			}
			matched++
			if is.Policy != p.Name {
				lost[is.Policy]++
				continue
			}
			for _, id := range []string{pair.X.ID, pair.Y.ID} {
				if offered, known := d.offers[id]; known && !slices.Contains(offered, is.Driver) {
					lacking[is.Driver] = append(lacking[is.Driver], id)
				}
			}
		}
		stop()
		d.sayMatched(report, p, matched)
		for _, other := range slices.Sorted(maps.Keys(lost)) {
			report.Done("%s that %s matches: decided by %s still, which counts more", counted(lost[other], "pair"), p.Name, decider(other))
		}
		for _, driver := range slices.Sorted(maps.Keys(lacking)) {
			report.Warn("cable driver %s is not offered by %s: pairs that need it will not be connected, unless Submariner.spec.cableDrivers lists it there", driver, several(unique(lacking[driver])))
		}
		if d.onBroker() && slices.ContainsFunc(p.ConnectionPolicies, func(r v1alpha1.CablePolicySpec) bool {
			return r.CableOptions != nil && r.CableOptions.Metadata.Name != ""
		}) {
			report.Warn("policy %s has a copy of its ConfigMap, which nobody refreshes on a broker: after a change of the ConfigMap, use --replace", p.Name)
		}
	}
}

// sayMatched says which clusters and how many pairs a policy matches.
func (d *policyDesk) sayMatched(report *progress.Reporter, p *v1alpha1.CablePolicies, pairs int) {
	for _, r := range p.ConnectionPolicies {
		for _, side := range []struct {
			name     string
			selector v1alpha1.ClusterSelector
		}{{"left", r.LeftClusterSelector}, {"right", r.RightClusterSelector}} {
			report.Done("policy %s, %s: %s selects %s", p.Name, side.name, policy.SelectorText(side.selector), cmp.Or(several(policy.Select(side.selector, d.clusters)), "no cluster now"))
		}
	}
	if pairs == 0 {
		report.Warn("policy %s matches no pair of clusters now", p.Name)
		return
	}
	report.Done("policy %s matches %s", p.Name, counted(pairs, "pair"))
}
