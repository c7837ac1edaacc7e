package exchange_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
)

// cablePolicy returns a policy as a person makes it.
func cablePolicy(name, driver string) *v1alpha1.CablePolicies {
	return &v1alpha1.CablePolicies{
		ObjectMeta:         metav1.ObjectMeta{Name: name, Namespace: here, Generation: 1},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: driver}},
	}
}

// of returns the policy of a cluster as the broker holds it.
func of(id string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	p.Labels = map[string]string{submarinerv1.ClusterIDLabel: id}
	return p
}

// copyOf returns the copy of a policy that a cluster made, from a clusterset.
func copyOf(id, set string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	on := p.DeepCopy() // the broker; with its signature, if it has one
	on.Name, _, _ = strings.Cut(p.Name, ".")
	if on.Labels = nil; id != submarinerv1.BrokerID {
		of(id, on)
	}
	p.Annotations = signed(set, on).Annotations
	p.Labels = map[string]string{submarinerv1.ClusterIDLabel: id, submarinerv1.ClusterSetLabel: set}
	if id != submarinerv1.BrokerID && p.Name == on.Name {
		p.Name += "." + id + "." + set
	}
	return p
}

// only returns a policy for one clusterset.
func only(set string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	p.Labels = map[string]string{submarinerv1.ClusterSetLabel: set}
	return p
}

// limited returns the policy of a cluster as the broker holds it, signed for one clusterset.
func limited(set string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	return brokertest.Sign(p, set)
}

// reported returns a policy whose condition Shared is as given.
func reported(
	status metav1.ConditionStatus,
	reason, message string,
	p *v1alpha1.CablePolicies,
	sets ...string,
) *v1alpha1.CablePolicies {
	p.Status.ClusterSets = sets
	if len(sets) > 0 {
		p.Status.Rules = p.ConnectionPolicies
	}
	p.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionShared, Status: status, Reason: reason, Message: message, ObservedGeneration: 1},
	}
	return p
}

// done returns a policy that is in clusterset default, with the condition that states it.
func done(p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	return reported(metav1.ConditionTrue, "Shared", "it is on the broker in clusterset default", p, "default")
}

// edited returns a policy whose driver a person has changed.
func edited(driver string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	p.Generation++
	p.ConnectionPolicies = []v1alpha1.CablePolicySpec{{CableDriver: driver}}
	return p
}

// said returns what is reported on policies, a line each.
func said(writes []exchange.Write) (out []string) {
	for _, w := range writes {
		if p, ok := w.Object.(*v1alpha1.CablePolicies); ok && w.Op == exchange.Report {
			c := p.Status.Conditions[0]
			text := fmt.Sprintf("%s: %s %s in %v: %s", p.Name, c.Status, c.Reason, p.Status.ClusterSets, c.Message)
			if len(p.Status.Rules) > 0 {
				text += "; " + p.Status.Rules[0].CableDriver + " counts"
			}
			out = append(out, text)
		}
	}
	return out
}

// noGRE is what is wrong with a policy of an unknown driver.
const noGRE = `spec[0].name: unknown cable driver "gre": use one of vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec`

type objects = []client.Object

// policyCase is a fact about the plan of cluster east.
type policyCase struct {
	local   objects
	sets    []exchange.SetSnapshot
	writes  []string
	said    []string
	refused []string
}

func (tc policyCase) check(t *testing.T) {
	t.Helper()
	writes, refused := plan(exchange.Kinds(),
		exchange.Snapshot{ClusterID: "east", Namespace: here, Local: tc.local, Sets: tc.sets})
	require.Equal(t, tc.writes, texts(writes))
	require.Equal(t, tc.said, said(writes))
	require.Equal(t, tc.refused, texts(refused))
}

func TestPolicyIsPublishedInEveryClusterset(t *testing.T) {
	policyCase{
		local: objects{cablePolicy("p", "vxlan")},
		sets:  []exchange.SetSnapshot{set("default"), set("lab")},
		writes: []string{
			"create CablePolicies p on the broker in clusterset default",
			"create CablePolicies p on the broker in clusterset lab",
			"report on CablePolicies p here",
		},
		said: []string{"p: False Pending in []: it is not on the broker yet in every clusterset that it is for"},
	}.check(t)
}

func TestPolicyIsReportedAsShared(t *testing.T) {
	policyCase{
		local: objects{cablePolicy("p", "vxlan")},
		sets: []exchange.SetSnapshot{
			set("default", of("east", cablePolicy("p", "vxlan"))),
			set("lab", of("east", cablePolicy("p", "vxlan"))),
		},
		writes: []string{"report on CablePolicies p here"},
		said: []string{
			"p: True Shared in [default lab]: it is on the broker in clusterset default, lab; vxlan counts",
		},
	}.check(t)
}

func TestSharedPolicyIsReportedOnce(t *testing.T) {
	policyCase{
		local: objects{done(cablePolicy("p", "vxlan"))},
		sets:  []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "vxlan")))},
	}.check(t)
}

func TestChangedPolicyIsUpdatedBeforeItIsReported(t *testing.T) {
	policyCase{
		local:  objects{edited("ipsec", done(cablePolicy("p", "vxlan")))},
		sets:   []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "vxlan")))},
		writes: []string{"update CablePolicies p on the broker in clusterset default"},
	}.check(t)
}

func TestChangedPolicyIsReportedWhenItHasArrived(t *testing.T) {
	policyCase{
		local:  objects{edited("ipsec", done(cablePolicy("p", "vxlan")))},
		sets:   []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "ipsec")))},
		writes: []string{"report on CablePolicies p here"},
		said:   []string{"p: True Shared in [default]: it is on the broker in clusterset default; ipsec counts"},
	}.check(t)
}

func TestUnreadClustersetKeepsThePolicyItHad(t *testing.T) {
	policyCase{
		local: objects{
			edited("ipsec",
				reported(metav1.ConditionTrue, "Shared", "so it was", cablePolicy("p", "vxlan"), "default", "lab")),
		},
		sets:   []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "ipsec"))), unread("lab")},
		writes: []string{"report on CablePolicies p here"},
		said:   []string{"p: True Shared in [default lab]: so it was; ipsec counts"},
	}.check(t)
}

func TestMistakeIsNotShared(t *testing.T) {
	policyCase{
		local:  objects{edited("gre", done(cablePolicy("p", "vxlan")))},
		sets:   []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "vxlan")))},
		writes: []string{"report on CablePolicies p here"},
		said: []string{
			"p: False Mistake in [default]: its last valid version stays in force: " + noGRE + "; vxlan counts",
		},
		refused: []string{
			"CablePolicies submariner-operator/p in this cluster: its last valid version stays in force: " + noGRE,
		},
	}.check(t)
}

func TestLastValidVersionIsPublishedAgain(t *testing.T) {
	policyCase{
		local: objects{edited("gre", done(cablePolicy("p", "vxlan")))},
		sets:  []exchange.SetSnapshot{set("default")},
		writes: []string{
			"create CablePolicies p on the broker in clusterset default",
			"report on CablePolicies p here",
		},
		said: []string{"p: False Mistake in []: its last valid version stays in force: " + noGRE},
		refused: []string{
			"CablePolicies submariner-operator/p in this cluster: its last valid version stays in force: " + noGRE,
		},
	}.check(t)
}

func TestMistakeIsDeletedFromTheBroker(t *testing.T) {
	policyCase{
		local: objects{cablePolicy("p", "gre")},
		sets:  []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "gre"))), set("lab")},
		writes: []string{
			"delete CablePolicies p on the broker in clusterset default",
			"report on CablePolicies p here",
		},
		said:    []string{"p: False Mistake in []: it is not in force anywhere: " + noGRE},
		refused: []string{"CablePolicies submariner-operator/p in this cluster: it is not in force anywhere: " + noGRE},
	}.check(t)
}

func TestMistakesOfOthersAreNotCopied(t *testing.T) {
	policyCase{
		local: objects{copyOf("west", "default", cablePolicy("p", "ipsec"))},
		sets:  []exchange.SetSnapshot{set("default", of("west", cablePolicy("p", "gre")), cablePolicy("q", "gre"))},
		refused: []string{
			"CablePolicies submariner-k8s-broker/p on the broker: its last valid version stays in force: " + noGRE,
			"CablePolicies submariner-k8s-broker/q on the broker: it is not in force anywhere: " + noGRE,
		},
	}.check(t)
}

func TestDriversAreCopiedUnderCanonicalNames(t *testing.T) {
	policyCase{
		local: objects{cablePolicy("p", "LibreSwan")},
		sets: []exchange.SetSnapshot{
			set("default", of("east", cablePolicy("p", "ipsec")), cablePolicy("q", "wireguard+vxlan")),
		},
		writes: []string{"create CablePolicies q here", "report on CablePolicies p here"},
		said:   []string{"p: True Shared in [default]: it is on the broker in clusterset default; ipsec counts"},
	}.check(t)
}

func TestPolicyForOneClusterset(t *testing.T) {
	policyCase{
		local: objects{only("lab", cablePolicy("p", "vxlan"))},
		sets: []exchange.SetSnapshot{
			set("default"),
			set("lab", limited("lab", of("east", cablePolicy("p", "vxlan")))),
		},
		writes: []string{"report on CablePolicies p here"},
		said:   []string{"p: True Shared in [lab]: it is on the broker in clusterset lab; vxlan counts"},
	}.check(t)
}

func TestPolicyIsWithdrawnFromAClusterset(t *testing.T) {
	policyCase{
		local: objects{only("lab", cablePolicy("p", "vxlan"))},
		sets: []exchange.SetSnapshot{
			set("default", of("east", cablePolicy("p", "vxlan"))),
			set("lab", limited("lab", of("east", cablePolicy("p", "vxlan")))),
		},
		writes: []string{
			"delete CablePolicies p on the broker in clusterset default",
			"report on CablePolicies p here",
		},
		said: []string{"p: True Shared in [lab]: it is on the broker in clusterset lab; vxlan counts"},
	}.check(t)
}

func TestPolicyForAForeignClusterset(t *testing.T) {
	policyCase{
		local:  objects{only("prod", cablePolicy("p", "vxlan"))},
		sets:   []exchange.SetSnapshot{set("default")},
		writes: []string{"report on CablePolicies p here"},
		said: []string{
			`p: False NotInClusterSet in []: label submariner.io/clusterset specifies clusterset "prod", which this cluster is not in`,
		},
		refused: []string{
			`CablePolicies submariner-operator/p in this cluster: label submariner.io/clusterset specifies clusterset "prod", which this cluster is not in`,
		},
	}.check(t)
}

func TestDeletedPolicyIsWithdrawn(t *testing.T) {
	policyCase{
		sets:   []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "vxlan")))},
		writes: []string{"delete CablePolicies p on the broker in clusterset default"},
	}.check(t)
}

func TestPolicyDeletedOnTheBrokerComesBack(t *testing.T) {
	policyCase{
		local: objects{done(cablePolicy("p", "vxlan"))},
		sets:  []exchange.SetSnapshot{set("default")},
		writes: []string{
			"create CablePolicies p on the broker in clusterset default",
			"report on CablePolicies p here",
		},
		said: []string{"p: False Pending in []: it is not on the broker yet in every clusterset that it is for"},
	}.check(t)
}

func TestPoliciesOfOthersAreCopied(t *testing.T) {
	policyCase{
		sets: []exchange.SetSnapshot{
			set("default", of("west", cablePolicy("p", "vxlan")), cablePolicy("default", "ipsec")),
			set("lab", of("west", cablePolicy("p", "vxlan"))),
		},
		writes: []string{
			"create CablePolicies default here",
			"create CablePolicies p.west.default here",
			"create CablePolicies p.west.lab here",
		},
	}.check(t)
}

func TestCopiesAreWrittenOnce(t *testing.T) {
	policyCase{
		local: objects{
			copyOf("west", "default", cablePolicy("p", "vxlan")),
			copyOf("BROKER", "default", cablePolicy("default", "ipsec")),
		},
		sets: []exchange.SetSnapshot{
			set("default", of("west", cablePolicy("p", "vxlan")), cablePolicy("default", "ipsec")),
		},
	}.check(t)
}

func TestCopiesOfDeletedPoliciesAreDeleted(t *testing.T) {
	policyCase{
		local: objects{
			copyOf("west", "default", cablePolicy("p", "vxlan")),
			copyOf("BROKER", "default", cablePolicy("default", "ipsec")),
		},
		sets:   []exchange.SetSnapshot{set("default")},
		writes: []string{"delete CablePolicies default here", "delete CablePolicies p.west.default here"},
	}.check(t)
}

func TestChangedCopyIsRepaired(t *testing.T) {
	policyCase{
		local:  objects{copyOf("BROKER", "default", cablePolicy("default", "vxlan"))},
		sets:   []exchange.SetSnapshot{set("default", cablePolicy("default", "ipsec"))},
		writes: []string{"update CablePolicies default here"},
	}.check(t)
}

func TestForgedCopiesAreDeleted(t *testing.T) {
	policyCase{
		local: objects{
			copyOf("west", "default", cablePolicy("forged", "vxlan")),
			copyOf("west", "default", cablePolicy("p.x", "vxlan")),
			copyOf("west", "default", cablePolicy("p", "vxlan")),
		},
		sets:   []exchange.SetSnapshot{set("default", of("west", cablePolicy("p", "vxlan")))},
		writes: []string{"delete CablePolicies p.x here", "delete CablePolicies forged.west.default here"},
	}.check(t)
}

func TestCopiesOfAClustersetThatWasLeftAreDeleted(t *testing.T) {
	policyCase{
		local:  objects{copyOf("west", "lab", cablePolicy("p.west.lab", "vxlan"))},
		sets:   []exchange.SetSnapshot{set("default")},
		writes: []string{"delete CablePolicies p.west.lab here"},
	}.check(t)
}

func TestCopiesOfAClustersetThatWasLeftStayUntilAllOthersAreRead(t *testing.T) {
	policyCase{
		local: objects{copyOf("west", "lab", cablePolicy("p.west.lab", "vxlan"))},
		sets:  []exchange.SetSnapshot{unread("default"), set("prod")},
	}.check(t)
}

func TestNothingOfAnUnreadClustersetIsDeleted(t *testing.T) {
	policyCase{
		local: objects{
			copyOf("west", "lab", cablePolicy("p.west.lab", "vxlan")),
			reported(metav1.ConditionTrue, "Shared", "", cablePolicy("q", "vxlan"), "lab"),
		},
		sets: []exchange.SetSnapshot{unread("lab")},
	}.check(t)
}

// Each cluster has its own names: no cluster can keep another from sharing a policy.
func TestNamesOfSeveralClusters(t *testing.T) {
	policyCase{
		local: objects{cablePolicy("p", "vxlan")},
		sets: []exchange.SetSnapshot{
			set("default", of("west", cablePolicy("p", "ipsec")), of("north", cablePolicy("p", "wireguard"))),
		},
		writes: []string{
			"create CablePolicies p.west.default here", "create CablePolicies p.north.default here",
			"create CablePolicies p on the broker in clusterset default", "report on CablePolicies p here",
		},
		said: []string{"p: False Pending in []: it is not on the broker yet in every clusterset that it is for"},
	}.check(t)
	policyCase{
		local: objects{
			done(cablePolicy("p", "vxlan")),
			copyOf("west", "default", cablePolicy("p.west.default", "ipsec")),
			copyOf("north", "default", cablePolicy("p.north.default", "wireguard")),
		},
		sets: []exchange.SetSnapshot{
			set("default", of("west", cablePolicy("p", "ipsec")), of("north", cablePolicy("p", "wireguard")),
				of("east", cablePolicy("p", "vxlan"))),
		},
	}.check(t)
}

// A copy of a cluster's policy takes no name that a person may choose here, or that a copy of a
// policy of the broker needs.
func TestNamesOfTheBrokersCopies(t *testing.T) {
	policyCase{
		local: objects{
			copyOf("west", "default", cablePolicy("p", "ipsec")),
			copyOf("lab", "default", cablePolicy("q", "ipsec")),
			copyOf("west", "lab", cablePolicy("p", "ipsec")),
		},
		sets: []exchange.SetSnapshot{
			set("default", of("west", cablePolicy("p", "ipsec")), of("lab", cablePolicy("q", "ipsec")),
				cablePolicy("p", "vxlan"), cablePolicy("q", "vxlan")),
			set("lab", of("west", cablePolicy("p", "ipsec")), cablePolicy("p", "vxlan")),
		},
		writes: []string{
			"create CablePolicies p here", "create CablePolicies q here", "create CablePolicies p.lab here",
		},
	}.check(t)
}

func TestNameTakenByTheBrokerInOneClusterset(t *testing.T) {
	policyCase{
		local: objects{copyOf("BROKER", "default", cablePolicy("p.default", "ipsec")), cablePolicy("p", "vxlan")},
		sets: []exchange.SetSnapshot{
			set("default", cablePolicy("p", "ipsec")),
			set("lab", of("east", cablePolicy("p", "vxlan"))),
		},
		writes: []string{"report on CablePolicies p here"},
		said: []string{
			"p: False NameTaken in [lab]: the broker has a cable policy of this name in clusterset default: delete this one if the broker has adopted it; otherwise create it again under another name; vxlan counts",
		},
		refused: []string{
			"CablePolicies submariner-operator/p in this cluster: the broker has a cable policy of this name in clusterset default: delete this one if the broker has adopted it; otherwise create it again under another name",
		},
	}.check(t)
}

// The administrator of a broker makes a policy of a cluster one of the broker, by removing the
// label of its owner. No cluster is without the policy at any moment.
func TestPolicyAdoptedByTheBroker(t *testing.T) {
	const taken = "the broker has a cable policy of this name in clusterset default: delete this one if the broker has adopted it; otherwise create it again under another name"
	policyCase{
		local:   objects{done(cablePolicy("p", "ipsec"))},
		sets:    []exchange.SetSnapshot{set("default", cablePolicy("p", "ipsec"))},
		writes:  []string{"create CablePolicies p.default here", "report on CablePolicies p here"},
		said:    []string{"p: False NameTaken in []: " + taken},
		refused: []string{"CablePolicies submariner-operator/p in this cluster: " + taken},
	}.check(t)
	policyCase{
		local:  objects{copyOf("west", "default", cablePolicy("p", "ipsec"))},
		sets:   []exchange.SetSnapshot{set("default", cablePolicy("p", "ipsec"))},
		writes: []string{"create CablePolicies p here", "delete CablePolicies p.west.default here"},
	}.check(t)
}

func TestCopyKeepsItsName(t *testing.T) {
	policyCase{
		local: objects{
			copyOf("west", "default", cablePolicy("p.west.default", "ipsec")),
			copyOf("BROKER", "default", cablePolicy("q.default", "ipsec")),
		},
		sets: []exchange.SetSnapshot{set("default", of("west", cablePolicy("p", "ipsec")), cablePolicy("q", "ipsec"))},
	}.check(t)
}

func TestNamesThatCannotBeShared(t *testing.T) {
	policyCase{
		local: objects{cablePolicy("p.lab", "vxlan")},
		sets: []exchange.SetSnapshot{
			set("default", cablePolicy("a.b", "vxlan")),
			set("lab", cablePolicy("p", "ipsec")),
		},
		writes: []string{"report on CablePolicies p.lab here"},
		said: []string{
			`p.lab: False InvalidName in []: "p.lab" cannot name a cable policy: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
		refused: []string{
			`CablePolicies submariner-k8s-broker/a.b on the broker: "a.b" cannot name a cable policy: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
			`CablePolicies submariner-k8s-broker-lab/p on the broker: this cluster has an object of the name p.lab`,
			`CablePolicies submariner-operator/p.lab in this cluster: "p.lab" cannot name a cable policy: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends`,
		},
	}.check(t)
}

func TestLargePoliciesAndUnknownOwnersAreRefused(t *testing.T) {
	policyCase{
		local: objects{},
		sets: []exchange.SetSnapshot{
			set("default", of("west", cablePolicy("p", strings.Repeat("x", 17000))),
				of("no.body", cablePolicy("q", "vxlan"))),
		},
		refused: []string{
			"CablePolicies submariner-k8s-broker/p on the broker: it is not in force anywhere: it has 17076 bytes, more than 16384",
			`CablePolicies submariner-k8s-broker/q on the broker: "no.body" is not a cluster ID`,
		},
	}.check(t)
}

// A broker that enforces no bounds may hold a version of an own policy that is too large. It
// is replaced, and is not reported as what is in force.
func TestLargeVersionOnTheBrokerIsReplaced(t *testing.T) {
	stub := of("east", cablePolicy("p", ""))
	stub.ConnectionPolicies = nil
	stub.Annotations = map[string]string{"submariner.io/size": "17076"} // as a mirror keeps it
	policyCase{
		local:  objects{done(cablePolicy("p", "vxlan"))},
		sets:   []exchange.SetSnapshot{set("default", stub)},
		writes: []string{"update CablePolicies p on the broker in clusterset default"},
	}.check(t)
}

// A label that somebody puts on a policy of this cluster takes it out of force nowhere, be it
// this cluster's ID or the ID of another.
func TestLabelledPolicyStaysShared(t *testing.T) {
	for _, id := range []string{"east", "west"} {
		labelled := done(cablePolicy("p", "vxlan"))
		labelled.Labels = map[string]string{submarinerv1.ClusterIDLabel: id}
		policyCase{
			local: objects{labelled},
			sets:  []exchange.SetSnapshot{set("default", of("east", cablePolicy("p", "vxlan")))},
		}.check(t)
	}
}

// A cluster may not fill the others: what is too much is the same for all of them,
// and for itself.
func TestManyPoliciesOfOneCluster(t *testing.T) {
	var theirs, brokers, own []client.Object
	for i := range 300 {
		theirs = append(theirs, of("west", cablePolicy(fmt.Sprintf("w%03d", i), "vxlan")))
		brokers = append(brokers, cablePolicy(fmt.Sprintf("b%03d", i), "vxlan"))
		own = append(own, cablePolicy(fmt.Sprintf("e%03d", i), "vxlan"))
	}
	writes, refused := plan(
		exchange.Kinds(),
		exchange.Snapshot{
			ClusterID: "east",
			Namespace: here,
			Sets:      []exchange.SetSnapshot{set("default", append(theirs, brokers...)...)},
		},
	)
	require.Len(t, writes, 32+300, "who has the broker needs no bounds")
	require.Equal(t, "CablePolicies submariner-k8s-broker/w032 on the broker: cluster west has more than 32 of them",
		refused[0].String())
	writes, refused = plan(exchange.Kinds(),
		exchange.Snapshot{ClusterID: "east", Namespace: here, Local: own, Sets: []exchange.SetSnapshot{set("default")}})
	require.Len(t, writes, 32+300)
	require.Len(t, refused, 300-32)
	require.Contains(t, said(writes),
		"e032: False TooMany in []: a clusterset takes 32 cablepolicies of one cluster, the first by name")
}

// What is copied of a policy: labels and annotations mean something to tools of the
// cluster they are in.
func TestFederatedPolicy(t *testing.T) {
	o := only("default", cablePolicy("p", "vxlan"))
	o.Labels["app.kubernetes.io/managed-by"] = "argo"
	o.Annotations = map[string]string{"a": "b"}
	o.Finalizers = []string{"f"}
	writes, _ := plan(
		exchange.Kinds(),
		exchange.Snapshot{
			ClusterID: "east",
			Namespace: here,
			Local:     []client.Object{o},
			Sets:      []exchange.SetSnapshot{set("default")},
		},
	)
	want := of("east", cablePolicy("p", "vxlan"))
	want.Namespace = "submariner-k8s-broker"
	want.Generation = 0
	brokertest.SignAt(want, "default", now.UnixMilli())
	require.Equal(t, inSlot("east.0", want.DeepCopy()), writes[0].Object)

	there := want.DeepCopy()
	there.Labels["x"] = "y"
	there.Annotations["a"] = "b"
	writes, _ = plan(exchange.Kinds(),
		exchange.Snapshot{ClusterID: "west", Namespace: here, Sets: []exchange.SetSnapshot{set("default", there)}})
	want = copyOf("east", "default", want)
	want.Namespace = here
	require.Equal(t, want, writes[0].Object)
}

// Where only policies of the broker apply, policies of clusters leave the broker and the copies.
func TestPoliciesOfTheBrokerOnly(t *testing.T) {
	copied := func(id, name string) client.Object { return copyOf(id, "default", cablePolicy(name, "vxlan")) }
	writes, refused := plan(exchange.KindsFrom(v1alpha1.PoliciesFromBroker), exchange.Snapshot{
		ClusterID: "east", Namespace: here,
		Local: objects{
			done(cablePolicy("own", "vxlan")),
			copied("west", "theirs"),
			copied(submarinerv1.BrokerID, "kept"),
		},
		Sets: []exchange.SetSnapshot{set("default", of("east", cablePolicy("own", "vxlan")),
			of("west", cablePolicy("theirs", "vxlan")), cablePolicy("kept", "vxlan"), cablePolicy("new", "vxlan"))},
	})
	require.ElementsMatch(t, []string{
		"delete CablePolicies own on the broker in clusterset default", "report on CablePolicies own here",
		"delete CablePolicies theirs.west.default here", "create CablePolicies new here",
	}, texts(writes))
	require.Equal(
		t,
		[]string{
			"own: False BrokerOnly in []: the broker accepts no cable policy of a cluster (deploy-broker --policies-from broker): create it on the broker, and delete this one",
		},
		said(writes),
	)
	require.Len(t, refused, 2)
	require.Empty(t, exchange.KindsFrom(v1alpha1.PoliciesFromMembers)[0].Free.BrokerOnly)
}
