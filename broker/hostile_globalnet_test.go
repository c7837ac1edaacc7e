package broker_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/globalnet"
	"subctl/internal/kubetest"
)

// gateway returns an Endpoint of a member with a global network.
func (d *deployed) gateway(id string, subnets, addresses []string) client.Object {
	e := endpoint(d.NS, id, "10-0-0-1")
	e.Spec.Subnets = subnets
	e.Spec.AllocatedIPs = addresses
	return brokertest.InSlot(e, id, 0)
}

// global returns the Cluster of a member with global networks.
func (d *deployed) global(id string, networks ...string) client.Object {
	c := cluster(d.NS, id)
	c.Spec.GlobalCIDR = networks
	return c
}

// requireAnnounces checks whether a member may announce a network: the API server knows a new right
// after a moment.
func (d *deployed) requireAnnounces(t *testing.T, as client.Client, id, network string, may bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := as.Create(t.Context(), d.global(id, network), client.DryRunAll)
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		return (err == nil) == may
	}, patience, tick)
}

// A member announces only the global networks, and addresses in them, that the broker has given to
// it.
func TestHostileMemberAnnouncesGlobalNetworks(t *testing.T) {
	d, info := deployGlobalnet(t, "242.0.0.0/8", 65536)
	joiner, _ := d.Joiner(t)
	for _, id := range []string{"west", "east", "east-b"} {
		_, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: id})
		require.NoError(t, err)
	}
	own := d.networks(t).Find("east").Networks[0].String()
	foreign := d.networks(t).Find("west").Networks[0].String()
	require.Equal(t, []string{"242.1.0.0/16", "242.0.0.0/16"}, []string{own, foreign})
	east := d.Join(t, "east", "uid-east")
	plain := d.Join(t, "plain", "uid-plain")
	d.requireAnnounces(t, east, "east", own, true)
	d.requireAnnounces(t, east, "east", foreign, false)
	for _, test := range []struct {
		name string
		as   client.Client
		what client.Object
		ok   bool
	}{
		{"its network", east, d.global("east", own), true},
		{
			"its network and addresses",
			east,
			d.gateway("east", []string{own}, []string{"242.1.0.0", "242.1.255.255"}),
			true,
		},
		{
			"as many addresses as it may have",
			east,
			d.gateway("east", []string{own}, slices.Repeat([]string{"242.1.0.9"}, submarinerv1.MaxAllocatedIPs)),
			true,
		},
		{
			"networks of its own outside the range",
			plain,
			d.gateway("plain", []string{"10.0.0.0/16", "241.0.0.0/8", "fd00::/64", "x"}, nil),
			true,
		},
		{"many of them", plain, d.gateway("plain", slices.Repeat([]string{"10.0.0.0/16"}, 100), nil), true},
		{"a foreign network", east, d.global("east", own, foreign), false},
		{"three networks", east, d.global("east", own, own, own), false},
		{"part of its network", east, d.global("east", "242.1.2.0/24"), false},
		{"a foreign network of an Endpoint", east, d.gateway("east", []string{foreign}, nil), false},
		{"part of one", east, d.gateway("east", []string{own, "242.0.7.0/24"}, nil), false},
		{"more than the range", east, d.gateway("east", []string{"240.0.0.0/4"}, nil), false},
		{"a network that is not aligned", east, d.gateway("east", []string{"243.0.0.0/7"}, nil), false},
		{"a foreign address", east, d.gateway("east", []string{own}, []string{"242.1.0.1", "242.0.0.1"}), false},
		{"the address before", east, d.gateway("east", []string{own}, []string{"242.0.255.255"}), false},
		{"the address behind", east, d.gateway("east", []string{own}, []string{"242.2.0.0"}), false},
		{"an address outside the range", east, d.gateway("east", []string{own}, []string{"1.1.1.1"}), false},
		{
			"an address of a network outside the range",
			east,
			d.gateway("east", []string{own, "1.1.1.0/24"}, []string{"1.1.1.1"}),
			false,
		},
		{"no address", east, d.gateway("east", []string{own}, []string{"x"}), false},
		{
			"too many addresses",
			east,
			d.gateway("east", []string{own}, slices.Repeat([]string{"242.1.0.9"}, submarinerv1.MaxAllocatedIPs+1)),
			false,
		},
		{"a network that nobody has", plain, d.global("plain", "10.7.0.0/16"), false},
		{
			"an address without a global network",
			plain,
			d.gateway("plain", []string{"10.0.0.0/16"}, []string{"10.0.0.1"}),
			false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.as.Create(t.Context(), test.what, client.DryRunAll)
			if test.ok {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err,
				"which the broker has not given to it: run subctl join with the version of the broker, or let the administrator of the broker run subctl deploy-broker again")
		})
	}
	t.Log("nor by a change")
	first := d.global("east", own).(*submarinerv1.Cluster)
	require.NoError(t, east.Create(t.Context(), first))
	first.Spec.GlobalCIDR = []string{foreign}
	require.True(t, apierrors.IsForbidden(east.Update(t.Context(), first)))
}

// A right to announce begins and ends with the network: when a cluster changes it, gives it up, or
// leaves. A broker that is deployed again does not know the members of the earlier one.
func TestRightToAnnounce(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 256)
	joiner, _ := d.Joiner(t)
	old, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "east"})
	require.NoError(t, err)
	east := d.Join(t, "east", "uid-east")
	d.requireAnnounces(t, east, "east", old.String(), true)
	other := netip.MustParsePrefix("172.31.0.0/24")
	_, err = d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "east", Network: other})
	require.NoError(t, err)
	d.requireAnnounces(t, east, "east", other.String(), true)
	d.requireAnnounces(t, east, "east", old.String(), true)
	require.NoError(t, broker.SettleNetwork(t.Context(), joiner, d.NS, "east", other, time.Now()))
	d.requireAnnounces(t, east, "east", old.String(), false)
	d.requireAnnounces(t, east, "east", other.String(), true)
	require.NoError(t, broker.SettleNetwork(t.Context(), joiner, d.NS, "east", netip.Prefix{}, time.Now()))
	d.requireAnnounces(t, east, "east", other.String(), false)

	t.Log("nor is a third network recorded, to which it could have no right")
	for _, n := range []netip.Prefix{other, old} {
		_, err = d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "east", Network: n})
		require.NoError(t, err)
	}
	_, err = d.reserve(t.Context(), joiner, info,
		globalnet.NetworkRequest{Cluster: "east", Network: netip.MustParsePrefix("172.31.1.0/24")})
	require.ErrorContains(t, err, "has not finished the change of its global network from 172.31.0.0/24 to 10.0.0.0/24")
	require.NoError(t, broker.SettleNetwork(t.Context(), joiner, d.NS, "east", netip.Prefix{}, time.Now()))

	t.Log("an earlier version of deploy-broker gave no such right")
	_, err = d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "east", Network: other})
	require.NoError(t, err)
	require.NoError(t, broker.LetAnnounce(t.Context(), d.Admin, d.NS, "east"))
	d.requireAnnounces(t, east, "east", other.String(), false)
	require.NoError(t, broker.LetAllAnnounce(t.Context(), d.Admin, d.NS, time.Now()))
	d.requireAnnounces(t, east, "east", other.String(), true)

	require.NoError(
		t,
		broker.Revoke(t.Context(), d.Admin, d.NS, []string{"default", "prod"}, "east", brokertest.Key("administrator"),
			time.Now()),
	)
	again := d.Join(t, "east", "uid-again")
	d.requireAnnounces(t, again, "east", other.String(), false)
	d.RemoveClusterScoped(t)

	e, _ := deployGlobalnet(t, "10.0.0.0/16", 256)
	west := e.Join(t, "west", "uid-west")
	e.requireAnnounces(t, west, "west", old.String(), false)
	_, err = e.reserve(t.Context(), e.Admin, info, globalnet.NetworkRequest{Cluster: "west"})
	require.NoError(t, err)
	e.requireAnnounces(t, west, "west", old.String(), true)
}

// inviteEast invites east, with a global network, and returns the invitation and a client with its
// file.
func (d *deployed) inviteEast(t *testing.T) (*trust.Invitation, client.Client) {
	t.Helper()
	hub := &v1alpha1.Broker{}
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: v1alpha1.BrokerName}, hub))
	file, err := broker.InviteCluster(t.Context(), d.Admin, hub, broker.Invitation{
		URL:           d.Server.Config().Host,
		PSK:           make(broker.Secret, 48),
		Administrator: brokertest.Key("administrator"),
		TTL:           time.Hour,
		Global:        &globalnet.NetworkRequest{Cluster: "east"},
	}, trust.Invitation{Cluster: "east", Gateways: 2, Sets: []string{"default"}}, time.Now())
	require.NoError(t, err)
	invitation, err := file.Invited()
	require.NoError(t, err)
	return invitation, kubetest.Client(t, file.RESTConfig(false))
}

// An invitation of an earlier version, which nobody has used, gets the rights of one of this
// version when deploy-broker runs. An invitation loses the right to a network that its cluster has
// given up.
func TestRightsOfInvitations(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 256)
	invitation, invitee := d.inviteEast(t)
	role := &rbacv1.Role{}
	require.NoError(t,
		d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: broker.InviteeName("east")}, role))
	isNew := func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, "announce") || slices.Contains(r.Verbs, "patch")
	}
	want := slices.Clone(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, isNew)
	require.Len(t, role.Rules, len(want)-2)
	require.NoError(t, d.Admin.Update(t.Context(), role))
	require.NoError(t, broker.LetAllAnnounce(t.Context(), d.Admin, d.NS, time.Now()))
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	require.Equal(t, want, role.Rules)
	var uid types.UID
	require.Eventually(t, func() bool {
		var err error
		uid, err = broker.EnsureMember(t.Context(), invitee, d.NS, "east", "uid-east", broker.Reservation{})
		return err == nil
	}, patience, tick)
	require.Eventually(t,
		func() bool { return broker.LetAnnounce(t.Context(), invitee, d.NS, "east", invitation.Global) == nil },
		patience, tick)

	joiner, _ := d.Joiner(t)
	other := netip.MustParsePrefix("172.31.0.0/24")
	_, err := broker.ReserveNetwork(t.Context(), joiner, d.NS, info,
		broker.NetworkRequest{NetworkRequest: globalnet.NetworkRequest{Cluster: "east", Network: other}, Account: uid},
		time.Now())
	require.NoError(t, err)
	require.NoError(t, broker.SettleNetwork(t.Context(), joiner, d.NS, "east", other, time.Now()))
	require.NoError(t, broker.LetAllAnnounce(t.Context(), d.Admin, d.NS, time.Now()))
	require.Eventually(t, func() bool {
		err := broker.LetAnnounce(t.Context(), invitee, d.NS, "east", invitation.Global)
		return apierrors.IsForbidden(err)
	}, patience, tick)
}

// A join file for one cluster lets that cluster announce the network that the invitation reserves,
// and no other. A general file changes nothing else of a member.
func TestHostileJoinerLetsAnnounce(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 256)
	invitation, invitee := d.inviteEast(t)
	general, _ := d.Joiner(t)
	require.Eventually(t, func() bool {
		_, err := broker.EnsureMember(t.Context(), invitee, d.NS, "east", "uid-east", broker.Reservation{})
		return err == nil
	}, patience, tick)
	foreign, err := d.reserve(t.Context(), general, info, globalnet.NetworkRequest{Cluster: "west"})
	require.NoError(t, err)
	require.True(t, apierrors.IsForbidden(broker.LetAnnounce(t.Context(), invitee, d.NS, "east", foreign)))
	require.True(t,
		apierrors.IsForbidden(broker.LetAnnounce(t.Context(), invitee, d.NS, "east", invitation.Global, foreign)))
	require.True(t, apierrors.IsForbidden(broker.LetAnnounce(t.Context(), invitee, d.NS, "west", invitation.Global)))
	require.NoError(t, broker.LetAnnounce(t.Context(), invitee, d.NS, "east", invitation.Global))
	east := d.Join(t, "east", "uid-east")
	d.requireAnnounces(t, east, "east", invitation.Global.String(), true)
	d.requireAnnounces(t, east, "east", foreign.String(), false)
	require.True(t, apierrors.IsForbidden(broker.LetAnnounce(t.Context(), east, d.NS, "east", foreign)),
		"a member cannot change its rights")

	for name, patch := range map[string]string{
		"any network":        `{"rules":[SELF,{"apiGroups":["submariner.io"],"resources":["globalnetworks"],"verbs":["announce"]}]}`,
		"every verb":         `{"rules":[SELF,{"apiGroups":["submariner.io"],"resources":["globalnetworks"],"resourceNames":["10.0.9.0/24"],"verbs":["*"]}]}`,
		"every resource":     `{"rules":[SELF,{"apiGroups":["submariner.io"],"resources":["*"],"resourceNames":["10.0.9.0/24"],"verbs":["announce"]}]}`,
		"another group":      `{"rules":[SELF,{"apiGroups":["*"],"resources":["globalnetworks"],"resourceNames":["10.0.9.0/24"],"verbs":["announce"]}]}`,
		"three networks":     `{"rules":[SELF,{"apiGroups":["submariner.io"],"resources":["globalnetworks"],"resourceNames":["1","2","3"],"verbs":["announce"]}]}`,
		"three rules":        `{"rules":[SELF,{"apiGroups":["submariner.io"],"resources":["globalnetworks"],"resourceNames":["1"],"verbs":["announce"]},SELF]}`,
		"to read Secrets":    `{"rules":[SELF,{"apiGroups":[""],"resources":["secrets"],"resourceNames":["x"],"verbs":["get"]}]}`,
		"no rules":           `{"rules":[]}`,
		"an annotation":      `{"metadata":{"annotations":{"a":"b"}}}`,
		"a label":            `{"metadata":{"labels":{"a":"b"}}}`,
		"a finalizer":        `{"metadata":{"finalizers":["example.com/kept"]}}`,
		"another owner":      `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ServiceAccount","name":"cluster-west","uid":"gone"}]}}`,
		"nobody as an owner": `{"metadata":{"ownerReferences":null}}`,
	} {
		t.Run("the holder of a general file gives a member "+name, func(t *testing.T) {
			const self = `{"apiGroups":[""],"resources":["serviceaccounts"],"resourceNames":["cluster-west"],"verbs":["get","list","watch","delete"]}`
			role := &rbacv1.Role{}
			role.Namespace = d.NS
			role.Name = "cluster-west"
			err := general.Patch(t.Context(), role,
				client.RawPatch(types.MergePatchType, []byte(strings.ReplaceAll(patch, "SELF", self))),
				client.DryRunAll)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		})
	}
	for _, name := range []string{broker.MemberRoleName, broker.JoinerName, broker.IdentityRoleName} {
		role := &rbacv1.Role{}
		role.Namespace = d.NS
		role.Name = name
		err := general.Patch(t.Context(), role, client.RawPatch(types.MergePatchType, []byte(`{"rules":[]}`)),
			client.DryRunAll)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
	}
}
