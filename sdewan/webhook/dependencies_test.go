package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipsec "subctl/api/sdewan/ipsec/v1alpha1"
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
)

func site(proposal batch.ObjectName) batch.IpsecSiteSpec {
	return batch.IpsecSiteSpec{
		IpsecRemote: batch.IpsecRemote{
			Remote:       "%any",
			Auth:         "psk",
			PreSharedKey: "secret",
			Proposals:    []batch.ObjectName{proposal},
		},
		Connections: []batch.IpsecSiteConnection{
			{IpsecConnection: batch.IpsecConnection{Name: "a", Mode: "add", Proposals: []batch.ObjectName{proposal}}},
		},
	}
}

// Every reference of every kind: the rule is refused until what it uses exists, and what it uses
// cannot be deleted before the rule.
func TestDependencies(t *testing.T) {
	e := env(t)
	c := e.admin
	host := func(proposal batch.ObjectName) batch.IpsecHostSpec {
		s := site(proposal)
		return batch.IpsecHostSpec{
			IpsecRemote: s.IpsecRemote,
			Connections: []batch.IpsecHostConnection{{IpsecConnection: s.Connections[0].IpsecConnection}},
		}
	}
	proposal := batch.IpsecProposalSpec{Encryption: "aes256"}
	for _, test := range []struct {
		name string
		user sdewan.Rule
		used []sdewan.Rule
		kind string
	}{
		{
			"rule",
			&batch.Mwan3Rule{Spec: batch.Mwan3RuleSpec{Policy: "a"}},
			[]sdewan.Rule{policy("", "a", "cnf", "")},
			"Mwan3Policy",
		},
		{
			"forwarding",
			&batch.FirewallForwarding{Spec: batch.FirewallForwardingSpec{Src: "a", Dest: "b"}},
			[]sdewan.Rule{zone("", "a", "cnf"), zone("", "b", "cnf")},
			"FirewallZone",
		},
		{
			"firewall rule",
			&batch.FirewallRule{Spec: batch.FirewallRuleSpec{Src: "a", Dest: "*"}},
			[]sdewan.Rule{zone("", "a", "cnf")},
			"FirewallZone",
		},
		{
			"SNAT",
			&batch.FirewallSNAT{Spec: batch.FirewallSNATSpec{Dest: "a", SrcDIP: "192.0.2.1"}},
			[]sdewan.Rule{zone("", "a", "cnf")},
			"FirewallZone",
		},
		{
			"DNAT",
			&batch.FirewallDNAT{Spec: batch.FirewallDNATSpec{Src: "a", DestIP: "192.0.2.1"}},
			[]sdewan.Rule{zone("", "a", "cnf")},
			"FirewallZone",
		},
		{
			"site",
			&batch.IpsecSite{Spec: site("a")},
			[]sdewan.Rule{labelled("", "a", "cnf", "", &batch.IpsecProposal{Spec: proposal})},
			"IpsecProposal",
		},
		{
			"host, the groups mixed",
			&batch.IpsecHost{Spec: host("a")},
			[]sdewan.Rule{labelled("", "a", "cnf", "", &ipsec.IpsecProposal{Spec: proposal})},
			"IpsecProposal",
		},
		{
			"site of the other group",
			&ipsec.IpsecSite{Spec: site("a")},
			[]sdewan.Rule{labelled("", "a", "cnf", "", &batch.IpsecProposal{Spec: proposal})},
			"IpsecProposal",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := e.server.Namespace(t, "dependencies")
			elsewhere := e.server.Namespace(t, "dependencies")
			user := labelled(ns, "user", "cnf", "", test.user)
			for _, used := range test.used {
				// Neither in another namespace nor of another CNF.
				other := used.DeepCopyObject().(client.Object)
				other.SetNamespace(elsewhere)
				require.NoError(t, c.Create(t.Context(), other))
				denied(
					t,
					c.Create(t.Context(), user.DeepCopyObject().(client.Object)),
					"there is no "+test.kind+" "+used.GetName()+" with the label sdewanPurpose=cnf in namespace "+ns+
						": create it first",
				)
				used.SetNamespace(ns)
				require.NoError(t, c.Create(t.Context(), used))
			}
			require.NoError(t, c.Create(t.Context(), user))
			for _, used := range test.used {
				k, _ := sdewan.KindOf(used)
				uk, _ := sdewan.KindOf(user)
				denied(
					t,
					c.Delete(t.Context(), used),
					test.kind+" "+used.GetName()+" is used by "+uk.GVK.Kind+
						" user: delete or change what uses it first",
				)
				denied(t, c.DeleteAllOf(t.Context(), k.New(), client.InNamespace(ns)), "is used by")
			}
			require.NoError(t, c.Delete(t.Context(), user))
			for _, used := range test.used {
				require.NoError(t, c.Delete(t.Context(), used))
			}
		})
	}
}

func TestDependenciesOfChanges(t *testing.T) {
	e := env(t)
	c := e.admin
	ns := e.server.Namespace(t, "changes")
	require.NoError(t, c.Create(t.Context(), policy(ns, "a", "cnf", "")))
	require.NoError(t, c.Create(t.Context(), policy(ns, "other", "cnf-2", "")))
	r := rule(ns, "r", "cnf", "", "a")
	require.NoError(t, c.Create(t.Context(), r))

	patch := func(text string) error {
		return c.Patch(t.Context(), r.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	denied(t, patch(`{"spec":{"policy":"b"}}`), "spec.policy: there is no Mwan3Policy b")
	denied(t, patch(`{"spec":{"policy":"other"}}`), "there is no Mwan3Policy other with the label sdewanPurpose=cnf")
	denied(t, patch(`{"metadata":{"labels":{"sdewanPurpose":"cnf-2"}}}`),
		`the label sdewanPurpose cannot change from "cnf" to "cnf-2": delete the Mwan3Rule and create it again`)
	denied(t, patch(`{"metadata":{"labels":{"sdewanPurpose":null}}}`),
		`the label sdewanPurpose cannot change from "cnf" to ""`)
	require.NoError(t, patch(`{"spec":{"src_ip":"192.0.2.1"}}`))
	require.NoError(t, patch(`{"metadata":{"finalizers":["example.com/a"]}}`))

	// A rule that is being deleted uses nothing, and its finalizers can be removed.
	require.NoError(t, c.Delete(t.Context(), r))
	require.NoError(t, c.Delete(t.Context(), policy(ns, "a", "cnf", "")))
	require.NoError(t, patch(`{"metadata":{"finalizers":null}}`))

	// What is being deleted cannot be used any more.
	kept := policy(ns, "kept", "cnf", "")
	kept.Finalizers = []string{"example.com/a"}
	require.NoError(t, c.Create(t.Context(), kept))
	require.NoError(t, c.Delete(t.Context(), kept))
	denied(t, c.Create(t.Context(), rule(ns, "r", "cnf", "", "kept")), "there is no Mwan3Policy kept")
	require.NoError(t,
		c.Patch(t.Context(), kept, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))

	denied(t, c.Create(t.Context(), policy(ns, "p", "", "")), "the label sdewanPurpose is missing")
	swapped := labelled(ns, "swapped", "cnf", "", &batch.IpsecSite{Spec: site("")})
	swapped.Spec.Connections[0].RemoteSourceIP = "192.0.2.9-192.0.2.2"
	denied(t, c.Create(t.Context(), swapped), "192.0.2.9-192.0.2.2")
}

// Two rules that would be one object on the CNF.
func TestRivals(t *testing.T) {
	e := env(t)
	c := e.admin
	ns := e.server.Namespace(t, "rivals")
	require.NoError(t, c.Create(t.Context(), zone(ns, "wan", "cnf")))
	require.NoError(t, c.Create(t.Context(), zone(ns, "wan2", "cnf-2")))
	snat := labelled(ns, "x", "cnf", "",
		&batch.FirewallSNAT{Spec: batch.FirewallSNATSpec{Dest: "wan", SrcDIP: "192.0.2.1"}})
	require.NoError(t, c.Create(t.Context(), snat))
	dnat := func(zone batch.ZoneName, purpose string) client.Object {
		return labelled(ns, "x", purpose, "",
			&batch.FirewallDNAT{Spec: batch.FirewallDNATSpec{Src: zone, DestIP: "192.0.2.1"}})
	}
	denied(t, c.Create(t.Context(), dnat("wan", "cnf")),
		"FirewallSNAT x would be the same object on the CNF: use another name")
	require.NoError(t, c.Create(t.Context(), dnat("wan2", "cnf-2")))

	// An IpsecProposal that exists in both groups, as after a change of a schema, can be deleted in
	// one of them.
	proposal := batch.IpsecProposalSpec{Encryption: "aes256"}
	old := labelled(ns, "p", "cnf", "", &ipsec.IpsecProposal{Spec: proposal})
	require.NoError(t, c.Create(t.Context(), old))
	denied(t, c.Create(t.Context(), labelled(ns, "p", "cnf", "", &batch.IpsecProposal{Spec: proposal})),
		"IpsecProposal p would be the same object")
}
