package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// noPolicies is the digest where no policy is in force.
const noPolicies = "none"

// Digest returns a short text that differs between two sets of policies of a cluster if different
// rules are in force in them, or rules of different makers: 32 hexadecimal digits, or "none"
// without any. It does not depend on the order of the policies.
func Digest(policies []*v1alpha1.CablePolicies) string {
	type entry struct {
		Name  string
		Maker string // empty: this cluster
		Sets  []string
		Rules []v1alpha1.CablePolicySpec
	}
	var lines []string
	for _, p := range policies {
		sets := p.ClusterSets()
		if len(sets) == 0 {
			continue // the broker does not have it
		}
		// strings, lists and maps cannot fail to encode
		line, _ := json.Marshal(entry{p.SharedName(), submarinerv1.MakerOf(p, ""), sets, p.InForce()})
		lines = append(lines, string(line))
	}
	if len(lines) == 0 {
		return noPolicies
	}
	slices.SortFunc(lines, cmp.Compare)
	hash := sha256.New()
	for _, line := range lines {
		fmt.Fprintln(hash, line)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:16])
}
