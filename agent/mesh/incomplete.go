package mesh

import (
	"errors"
	"fmt"
	"strings"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
)

// This file tells state that is complete from state that was read in part. Objects arrive
// one by one, and in any order: an Endpoint before the Cluster that has the labels, or both
// before the policy that requires an encrypted cable. So a pair gets a cable, or another
// cable, only if the agent knows
//
//   - the Cluster object of the other cluster, with all clustersets that the two share, and
//   - all policies of this cluster's clustersets. The speaker reads them from the broker. Once
//     this cluster holds all of them, it notes their digest on this cluster's Cluster object
//     (submarinerv1.PoliciesAnnotation). Every agent compares the digest with the policies that
//     it sees itself. So the knowledge outlives the speaker and the connection to the broker, and
//     an agent that has not yet seen a policy, or sees one that is not on the broker, waits.
//
// A pair that has a cable keeps it until then. The two ends compute their decisions from
// their own copies, at different times: a new cable carries nothing until it answers, which
// it does only if the other end has the same.

// policySource returns where this cluster's policies come from, as the beginning of the
// annotation: the broker and the clustersets.
func policySource(spec v1alpha1.SubmarinerSpec, sets []string) string {
	return spec.BrokerK8sApiServer + "/" + spec.BrokerK8sRemoteNamespace + " " + strings.Join(sets, ",") + " "
}

// PoliciesRead returns the value of submarinerv1.PoliciesAnnotation of a cluster that is
// joined as spec specifies, and in the clustersets, once it holds all their policies; digest is
// policy.Digest of them.
func PoliciesRead(spec v1alpha1.SubmarinerSpec, sets []string, digest string) string {
	return policySource(spec, sets) + digest
}

// incomplete is the reason why a pair gets no cable yet. It is temporary, not an error.
type incomplete struct{ error }

// incompletePolicies returns why the policies that this agent sees may not be all; nil if
// they are.
func incompletePolicies(s role.Snapshot, m members.Membership, book *policy.Book) error {
	want := PoliciesRead(m.Submariner.Spec, m.Sets, book.Digest())
	has := ""
	if m.Cluster != nil {
		has = m.Cluster.Annotations[submarinerv1.PoliciesAnnotation]
	}
	switch {
	case has == want, s.PoliciesDigest == book.Digest():
		return nil
	case !strings.HasPrefix(has, policySource(m.Submariner.Spec, m.Sets)):
		return incomplete{errors.New("waiting for the cable policies: they have not been read from the broker yet")}
	}
	return incomplete{
		errors.New("waiting for the cable policies: they are changing, or differ from those on the broker"),
	}
}

// undecidable returns why it cannot be decided yet which cable connects a cluster; nil if it
// can.
func (c *chooser) undecidable(cluster string) error {
	known := c.membership.Clusters[cluster]
	if known == nil {
		return incomplete{
			fmt.Errorf("waiting for the Cluster object of cluster %s, which has its labels and clustersets", cluster),
		}
	}
	if unread := known.UnreadClusterSets(); len(unread) > 0 {
		return incomplete{
			fmt.Errorf("waiting for clusterset %s on the broker, which cluster %s may be in, too: it cannot be read",
				strings.Join(unread, ", "), cluster),
		}
	}
	return c.incomplete
}

// keepWhileIncomplete keeps the current cable of a pair while the cable that it should have cannot
// be decided. A pair without a cable does not get one.
func (c *chooser) keepWhileIncomplete(p *cable.Peer, why error) (cable.Driver, error) {
	if d := c.restoreCurrent(p); d != nil {
		return d, nil
	}
	return nil, why
}
