package join

import (
	"fmt"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
	"subctl/policy/catalog"
)

// checkCables and checkNAT judge the cables that the cluster will have: what the policies on the
// broker decide for its pairs with the other clusters of its sets, or, while there are none, for
// its pair with a cluster of the same sets that has no labels. The driver with which the broker was
// deployed decides nothing: it is the default of clusters that specify none.

// verdict is a decision of the policies that is the same for several pairs of this cluster.
type verdict struct {
	policy.Decision
	others []string // the other clusters; empty: those that join later
}

// verdicts returns what the policies decide for the pairs of this cluster, in the order of the
// clusters.
func (r request) verdicts() []verdict {
	spec := r.submariner(nil, nil).Spec
	labels := r.effective(r.before().ClusterLabels(), r.Labels)
	pairs := r.pairs(spec, labels)
	if len(pairs) == 0 {
		self := r.self(spec, labels)
		known := catalog.OfBroker(r.broker.Broker.Spec, r.broker.Members)
		return []verdict{{Decision: known.Book().Decide(self, policy.Cluster{Sets: self.Sets, Driver: self.Driver})}}
	}
	var out []verdict
	index := map[string]int{}
	for _, p := range pairs {
		d := p.decision
		key := fmt.Sprint(d.Driver, "\n", d.Policy, "\n", d.Err)
		i, known := index[key]
		if !known {
			i = len(out)
			index[key] = i
			out = append(out, verdict{Decision: d})
		}
		out[i].others = append(out[i].others, p.other)
	}
	return out
}

// clusters names the other clusters.
func (v verdict) clusters() string {
	switch len(v.others) {
	case 0:
		return "clusters that join later"
	case 1:
		return "cluster " + v.others[0]
	}
	return "clusters " + strings.Join(v.others, ", ")
}

// pairs names the pairs.
func (v verdict) pairs() string {
	if len(v.others) == 1 {
		return "the pair with " + v.clusters()
	}
	return "the pairs with " + v.clusters()
}

// choice states which driver is chosen, and by what.
func (v verdict) choice() string {
	if v.Policy == "" {
		return fmt.Sprintf("%s, the default driver of both clusters of %s,", v.Driver, v.pairs())
	}
	return fmt.Sprintf("%s, which cable policy %s chooses for %s,", v.Driver, v.Policy, v.pairs())
}

// checkCables warns of pairs that get no cable, and of a default driver that policies overrule.
func checkCables(r request) ([]string, error) {
	if r.invalidDrivers() {
		return nil, nil // checkDriver reports it
	}
	var warnings []string
	for _, v := range r.verdicts() {
		switch {
		case v.Err != nil && len(v.others) == 0:
			warnings = append(warnings,
				fmt.Sprintf("no cable to %s, unless another policy matches them: %v", v.clusters(), v.Err))
		case v.Err != nil:
			warnings = append(warnings, fmt.Sprintf("no cable to %s: %v", v.clusters(), v.Err))
		case v.Policy != "" && r.CableDriver != "" && !r.isStored("cable-driver") &&
			cable.Canonical(r.CableDriver) != v.Driver:
			warnings = append(
				warnings,
				fmt.Sprintf(
					"--cable-driver %s is used only where no cable policy decides: cable policy %s chooses %s for %s. "+
						"%s",
					r.CableDriver,
					v.Policy,
					v.Driver,
					v.pairs(),
					r.otherDriver(v),
				),
			)
		}
	}
	return warnings, nil
}

// otherDriver tells how the pairs of this cluster get the driver that was asked for, although a
// policy decides on another one. A member cannot change a policy of the broker: docs/adr/0045.
func (r request) otherDriver(v verdict) string {
	driver := cable.Canonical(r.CableDriver)
	if v.Policy != v1alpha1.DefaultCablePolicy {
		return fmt.Sprintf("To use %s, change policy %s, or add one that is more specific (subctl cable-policy)",
			driver, v.Policy)
	}
	return fmt.Sprintf("To use %[1]s for the pairs of this cluster: subctl cable-policy add %[2]s-cables "+
		"--left-cluster-selector %[3]s=%[2]s --cable-driver %[1]s. For all pairs that no other policy matches: "+
		"subctl deploy-broker --cable-driver %[1]s", driver, r.ClusterID, submarinerv1.ClusterIDLabel)
}
