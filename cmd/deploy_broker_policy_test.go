package cmd

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/cluster/clustertest"
	"subctl/internal/cli"
)

// The policy "default" is made with the broker, and changed by --cable-driver alone.
func TestDeployBrokerMakesTheDefaultPolicy(t *testing.T) {
	h := newHub(t)
	const asked = "the cable policy default changes from ipsec to vxlan: pairs of clusters that no other policy matches change their cable"
	ns := submarinerv1.BrokerNamespace
	p := &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}}
	key := client.ObjectKeyFromObject(p)
	patch := func(text string) {
		t.Helper()
		require.NoError(t, h.client.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(text))))
	}
	has := func(want ...v1alpha1.CablePolicySpec) {
		t.Helper()
		require.NoError(t, h.client.Get(t.Context(), key, p))
		require.Equal(t, want, p.ConnectionPolicies)
	}
	driver := func() string {
		b := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: ns}}
		require.NoError(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(b), b))
		return b.Spec.CableDriver
	}

	signed := func(name string) bool {
		f, err := broker.ReadOldJoinFile(broker.JoinFileName, nil)
		require.NoError(t, err)
		of := &v1alpha1.CablePolicies{}
		require.NoError(t, h.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, of))
		statement, err := exchange.Kinds().Verify(of, f.Administrator)
		return err == nil && statement.Set == "default"
	}

	r := h.done(t, "deploy-broker")
	require.NotContains(t, r.stderr, "cable policy")
	require.True(t, signed("default"))
	has(v1alpha1.CablePolicySpec{CableDriver: "vxlan"})

	t.Log("without the flag it is left alone")
	patch(`{"spec":[{"name":"ipsec"}]}`)
	r = h.done(t, "deploy-broker")
	require.NotContains(t, r.stderr, asked)
	require.Contains(t, r.stderr,
		"the cable policy default is not signed with the administrator's key, so clusters refuse it: sign it with --cable-driver ipsec\n")
	require.False(t, signed("default"))
	has(v1alpha1.CablePolicySpec{CableDriver: "ipsec"})

	h.done(t, "deploy-broker", "--cable-driver", "ipsec")
	require.True(t, signed("default"))

	t.Log("with it, it changes, unless pairs of clusters lose their encryption")
	members := func(write func(client.Object) error) {
		for _, id := range []string{"east", "west"} {
			for _, o := range clusterObjects(ns, id, id, "site="+id, "vxlan,ipsec") {
				if c, ok := o.(*submarinerv1.Cluster); ok {
					c.Spec.ServiceCIDR = []string{}
					c.Spec.ClusterCIDR = []string{}
					c.Spec.GlobalCIDR = []string{}
				}
				require.NoError(t, write(o))
			}
		}
	}
	members(func(o client.Object) error { return h.client.Create(t.Context(), o) })
	const table, loss = "CLUSTERS      NOW               THEN\neast - west   ipsec (default)   vxlan (default)\n",
		"1 pair of clusters would lose encryption:\n  east - west: ipsec (default) → vxlan (default), not encrypted\n"
	refused := h.run(t, nil, "deploy-broker", "--cable-driver", "vxlan")
	require.Equal(t, cli.ExitFailed, refused.code)
	require.Contains(t, refused.stderr,
		table+"Error: "+loss+"nothing was changed: to change it nevertheless, add --force\n")
	refused = h.run(t, nil, "deploy-broker", "--cable-driver", "vxlan", "--dry-run")
	require.Equal(t, cli.ExitTrouble, refused.code)
	require.Contains(t, refused.stdout, "kind: Broker")
	has(v1alpha1.CablePolicySpec{CableDriver: "ipsec"})
	require.Equal(t, "ipsec", driver(), "as it was")
	changed := h.done(t, "deploy-broker", "--cable-driver", "vxlan", "--force", "--wait").stderr
	require.Contains(t, changed, "would lose encryption")
	require.Contains(t, changed,
		"not waiting for 1 pair, as the kubeconfig has no usable context of either cluster: east - west\n")
	h.done(t, "deploy-broker", "--cable-driver", "vxlan", "--wait") // no pair changes its cable
	has(v1alpha1.CablePolicySpec{CableDriver: "vxlan"})
	require.Contains(t, h.done(t, "deploy-broker", "--cable-driver", "ipsec").stderr,
		"east - west   vxlan (default)   ipsec (default)\n")
	members(func(o client.Object) error { return h.client.Delete(t.Context(), o) })

	t.Log("and where no pair does")
	require.Contains(t, h.done(t, "deploy-broker", "--cable-driver", "vxlan", "--dry-run").stderr, asked)
	has(v1alpha1.CablePolicySpec{CableDriver: "ipsec"})
	require.Contains(t, h.done(t, "deploy-broker", "--cable-driver", "vxlan").stderr, asked)
	has(v1alpha1.CablePolicySpec{CableDriver: "vxlan"})
	require.True(t, signed("default"))

	t.Log("policies that people make on the broker are signed, too, and those that the broker adopts")
	h.done(t, "cable-policy", "add", "lab", "--cable-driver", "ipsec")
	require.True(t, signed("lab"))
	h.done(t, "cable-policy", "add", "lab", "--cable-driver", "vxlan", "--replace")
	require.True(t, signed("lab"))
	others := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "east",
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: "east"},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}},
	}
	others = brokertest.InSlot(others, "east", 3)
	require.NoError(t, h.client.Create(t.Context(), others))
	r = h.run(t, nil, "cable-policy", "list")
	require.Equal(t, cli.ExitTrouble, r.code)
	require.Contains(t, r.stdout, "east      1      any    any     ipsec          cluster east")
	require.Contains(t, r.stderr,
		"the clusters refuse it: clusterset default has no Cluster object of cluster east, which carries its grant")
	r = h.run(t, nil, "cable-policy", "adopt", "east")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(
		t,
		r.stderr,
		"Error: the clusters refuse cable policy east of cluster east: clusterset default has no Cluster object of cluster east, which carries its grant\n"+
			"nothing was changed: to adopt them nevertheless, which puts them in force, add --force\n",
	)
	h.done(t, "cable-policy", "adopt", "east", "--force")
	require.True(t, signed("east"))
	require.NoError(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(others), others))
	require.True(t, exchange.Kinds().IsEmpty(others), "its slot is in use")
	require.Contains(t, h.done(t, "cable-policy", "list").stdout,
		"east      1      any    any     ipsec          the broker")

	t.Log("with a new key, which no cluster has pinned, the policy default is signed again")
	require.NoError(t, os.Rename(broker.JoinFileName, "old.subm"))
	h.done(t, "deploy-broker")
	require.True(t, signed("default"))
	require.False(t, signed("lab"))
	require.Equal(t, "vxlan", driver())
	require.NotContains(t, h.done(t, "deploy-broker", "--cable-driver", "vxlan").stderr, asked)

	t.Log("a policy of this name of a cluster does not matter")
	theirs := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "default",
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: "a"},
		},
	}
	theirs.ConnectionPolicies = []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}}
	require.NoError(t, h.client.Create(t.Context(), brokertest.InSlot(theirs, "a", 0)))
	h.done(t, "deploy-broker", "--cable-driver", "vxlan")
	require.NoError(t, h.client.Delete(t.Context(), theirs))

	t.Log("what a person made of it is not undone")
	patch(`{"spec":[{"name":"ipsec"},{"name":"vxlan"}]}`)
	r = h.run(t, nil, "deploy-broker", "--cable-driver", "vxlan")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		"Error: the cable policy default was changed since the broker was deployed: change it with subctl cable-policy add --name default, or leave --cable-driver out\n")
	h.done(t, "deploy-broker")
	has(v1alpha1.CablePolicySpec{CableDriver: "ipsec"}, v1alpha1.CablePolicySpec{CableDriver: "vxlan"})

	t.Log("nor is it made again where it was deleted")
	require.NoError(t, h.client.Delete(t.Context(), p))
	h.done(t, "deploy-broker")
	require.True(t, apierrors.IsNotFound(h.client.Get(t.Context(), key, p)))

	t.Log("one that a member made is the member's")
	*p = v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "default",
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: "east"},
		},
	}
	p.ConnectionPolicies = []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}}
	require.NoError(t, h.client.Create(t.Context(), brokertest.InSlot(p, "east", 0)))
	theirs = p.DeepCopy()
	h.done(t, "deploy-broker")
	require.True(t, apierrors.IsNotFound(h.client.Get(t.Context(), key, p)))
	h.done(t, "deploy-broker", "--cable-driver", "vxlan")
	require.NoError(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs), "it stays as it is")
	has(v1alpha1.CablePolicySpec{CableDriver: "vxlan"})
	require.True(t, signed("default"))
}

// Whose policies apply is kept, like all settings of a broker, and does not change unnoticed.
func TestDeployBrokerPoliciesFrom(t *testing.T) {
	h := newHub(t)
	ns := submarinerv1.BrokerNamespace
	from := func() v1alpha1.PoliciesFrom {
		b := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: ns}}
		require.NoError(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(b), b))
		return b.Spec.PoliciesFrom
	}
	r := h.run(t, nil, "deploy-broker", "--policies-from", "me")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.stderr, `--policies-from "me" is not a value: use members or broker`)
	h.done(t, "deploy-broker")
	require.False(t, from().BrokerOnly())

	for _, id := range []string{"east", "west"} {
		for _, o := range clusterObjects(ns, id, id, "site="+id, "vxlan,ipsec") {
			if c, ok := o.(*submarinerv1.Cluster); ok {
				c.Spec.ServiceCIDR = []string{}
				c.Spec.ClusterCIDR = []string{}
				c.Spec.GlobalCIDR = []string{}
			}
			require.NoError(t, h.client.Create(t.Context(), o))
		}
	}
	p := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "secure",
			Namespace: ns,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: "east"},
		},
	}
	p.ConnectionPolicies = []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}}
	require.NoError(t, h.client.Create(t.Context(), brokertest.InSlot(p, "east", 0)))
	r = h.run(t, nil, "deploy-broker", "--policies-from", "broker")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		"--policies-from broker: these cable policies of clusters would no longer apply: secure of cluster east: let the broker adopt them (subctl cable-policy adopt), or delete them; to continue nevertheless, add --force\n")
	require.False(t, from().BrokerOnly())

	h.done(t, "cable-policy", "adopt", "secure", "--force")
	r = h.done(t, "deploy-broker", "--policies-from", "broker")
	require.Contains(t, r.stderr,
		"whose cable policies apply changes: these clusters apply it once they join again: east, west\n")
	require.True(t, from().BrokerOnly())
	h.done(t, "deploy-broker")
	require.True(t, from().BrokerOnly(), "it is kept")
	h.done(t, "deploy-broker", "--policies-from", "members")
	require.False(t, from().BrokerOnly())
}

// Where nobody specifies the driver of the policy "default", it is the one with which the cluster
// has joined before.
func TestDeployBrokerFollowsTheConfiguration(t *testing.T) {
	for _, test := range []struct {
		name, driver string
		flags        []string
		want         string
	}{
		{name: "the configuration has a driver", driver: "wireguard", want: "wireguard"},
		{name: "an older name of the driver", driver: "libreswan", want: "ipsec"},
		{name: "a driver that is unknown here", driver: "carrier-pigeon", want: "vxlan"},
		{name: "the configuration has none", want: "vxlan"},
		{name: "somebody specifies it", driver: "wireguard", flags: []string{"--cable-driver", "ipsec"}, want: "ipsec"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sub := &v1alpha1.Submariner{
				ObjectMeta: metav1.ObjectMeta{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName},
			}
			sub.Spec.ClusterID = "hub"
			sub.Spec.CableDriver = test.driver
			c := newDeployBroker(newGlobals(genericiooptions.NewTestIOStreamsDiscard()))
			require.NoError(t, c.ParseFlags(test.flags))
			o := &deployBrokerOptions{
				flags: c.Flags(), cableDriver: c.Flag("cable-driver").Value.String(),
				invite: inviteOptions{namespace: submarinerv1.BrokerNamespace},
			}
			o.render = broker.Options{
				Namespace: submarinerv1.BrokerNamespace, CableDriver: o.cableDriver, DefaultPolicy: o.cableDriver,
			}
			require.NoError(t, o.planDriver(t.Context(), clustertest.Client(t, sub), nil, false))
			require.Equal(t, test.want, o.render.DefaultPolicy)
			require.Equal(t, test.want, o.render.CableDriver)
		})
	}
}
