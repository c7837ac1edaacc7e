package join

import (
	"errors"
	"fmt"
	"strings"

	"subctl/cable/drivers"
	"subctl/policy"
	"subctl/policy/catalog"
)

// checkNAT refuses --natt if the policies choose a driver for a pair of this cluster that
// does not work through NAT. It warns if they would do so for a cluster that joins later, and
// of a NAT setting from an earlier join.
func checkNAT(r request) ([]string, error) {
	if !r.NAT {
		return nil, nil
	}
	sub := r.submariner(nil, nil)
	labels := r.effective(r.before().ClusterLabels(), r.Labels)
	remedy := fmt.Sprintf("these drivers work through NAT: %s; choose one with subctl cable-policy add, "+
		"or omit --natt, and make sure that gateways can reach the node addresses of other gateways", strings.Join(throughNAT(), ", "))
	var warnings []string
	var errs []error
	pairs := r.pairs(sub.Spec, labels)
	for _, p := range pairs {
		if passesNAT(p.decision) {
			continue
		}
		text := fmt.Sprintf("the cable driver of the pair with cluster %s, %s (%s), does not work through NAT: %s",
			p.other, p.decision.Driver, decidedBy(p.decision), remedy)
		if r.isStored("natt") {
			warnings = append(warnings, text)
		} else {
			errs = append(errs, fmt.Errorf("--natt: %s", text))
		}
	}
	if len(pairs) == 0 {
		self := r.self(sub.Spec, labels)
		later := policy.Cluster{Sets: self.Sets, Driver: self.Driver}
		if d := catalog.OfBroker(r.broker.Broker.Spec, r.broker.Members).Book().Decide(self, later); !passesNAT(d) {
			warnings = append(warnings, fmt.Sprintf("--natt: the cable driver for clusters that join later, %s (%s), does not work through NAT: %s",
				d.Driver, decidedBy(d), remedy))
		}
	}
	return warnings, errors.Join(errs...)
}

func passesNAT(d policy.Decision) bool {
	driver := drivers.Find(d.Driver)
	return driver == nil || driver.Properties().PassesNAT
}

// throughNAT returns the names of the drivers that work through NAT.
func throughNAT() []string {
	var out []string
	for _, d := range drivers.All() {
		if d.Properties().PassesNAT {
			out = append(out, d.Name())
		}
	}
	return out
}

func decidedBy(d policy.Decision) string {
	if d.Policy == "" {
		return "the default of both clusters"
	}
	return "cable policy " + d.Policy
}
