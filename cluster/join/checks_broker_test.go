package join_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/join"
)

var administrator = brokertest.Key("administrator")

func TestGrantFollowsThePlan(t *testing.T) {
	s := normal()
	s.f.Nodes = []corev1.Node{
		clustertest.Node("n1", "10.89.1.1"),
		clustertest.Node("n2", "10.89.1.2", submarinerv1.GatewayNodeLabel),
		clustertest.Node("n3", "10.89.1.3"),
	}
	s.GatewayNodes = []string{"n3", "n2"}
	p, err := s.plan()
	require.NoError(t, err)
	want := trust.Grant{
		Cluster: "west", UID: "uid-west", Gateways: trust.MaxGateways, Sets: []string{"default"},
		Networks: []netip.Prefix{netip.MustParsePrefix("10.101.0.0/16"), netip.MustParsePrefix("10.111.0.0/16")},
	}
	require.Equal(t, want, p.Grant)
	require.Len(t, p.Granted, 5, "all of it is new")

	t.Log("joining again changes nothing, unless the plan changes")
	key := brokertest.Key("west")
	granted := want
	granted.Key = key.Public()
	granted.Serial = 1
	token, err := administrator.SignGrant(granted)
	require.NoError(t, err)
	s.f.Trust = &cluster.Trust{Key: key, Administrator: administrator.Public(), Grant: token}
	p, err = s.plan()
	require.NoError(t, err)
	require.Empty(t, p.Granted)
	s.GatewayNodes = nil
	s.ClusterCIDRs = []string{"10.112.0.0/16"}
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []join.Change{{"networks", "10.101.0.0/16,10.111.0.0/16", "10.101.0.0/16,10.112.0.0/16"}},
		p.Granted)

	t.Log("a grant for another key is none")
	s.f.Trust.Key = brokertest.Key("other")
	p, err = s.plan()
	require.NoError(t, err)
	require.Len(t, p.Granted, 5)
}

func TestCheckTrust(t *testing.T) {
	other := brokertest.Key("other").Public()
	s := normal()
	s.b.Broker.Annotations = map[string]string{broker.AdministratorAnnotation: administrator.Public().String()}
	s.f.Trust = &cluster.Trust{Key: brokertest.Key("west"), Administrator: administrator.Public(), Grant: "a.b.c"}
	_, err := s.plan()
	require.NoError(t, err)

	s.f.Trust.Administrator = other
	_, err = s.plan()
	require.EqualError(
		t,
		err,
		"this cluster trusts the administrator's key "+other.String()+
			", which it pinned when it joined, and the key of the join file is "+
			administrator.Public().String()+
			": use a join file of that administrator, or run subctl uninstall first to trust another one",
	)
	s.f.Trust = nil
	s.b.Broker.Annotations[broker.AdministratorAnnotation] = other.String()
	_, err = s.plan()
	require.EqualError(
		t,
		err,
		"the administrator's key in the join file, "+administrator.Public().String()+
			", is not the key with which the broker was deployed, "+
			other.String()+
			": the other clusters would refuse this cluster; get a new file from subctl deploy-broker or subctl invite",
	)
}

func TestCheckInvitation(t *testing.T) {
	const ask = "ask the administrator of the broker for another file (subctl invite)"
	for _, test := range []struct {
		name   string
		change func(*trust.Invitation)
		want   string
	}{
		{"it fits", func(*trust.Invitation) {}, ""},
		{"any network", func(i *trust.Invitation) { i.Networks = nil }, ""},
		{
			"another cluster",
			func(i *trust.Invitation) { i.Cluster = "east" },
			`the join file is for cluster "east", not "west": join with --clusterid east, or ` + ask,
		},
		{
			"a network outside", func(i *trust.Invitation) { i.Networks = i.Networks[:1] },
			"the join file allows the networks 10.111.0.0/16, and 10.101.0.0/16 is not within them: specify the right networks with --clustercidr and --servicecidr, or " +
				ask,
		},
		{
			"too many gateways", func(i *trust.Invitation) { i.Gateways = 1 },
			"the join file allows 1 gateway nodes, and this cluster would have 2: specify fewer with --gateways or --gateway-nodes, remove labels from nodes, or " +
				ask,
		},
		{
			"another clusterset", func(i *trust.Invitation) { i.Sets = []string{"prod"} },
			"the join file is for clusterset prod, not default: specify it with --clusterset, or " + ask,
		},
		{"namespaces of exports", func(i *trust.Invitation) { i.ExportNamespaces = []string{"shop", "team-*"} }, ""},
		{
			"namespaces of exports outside", func(i *trust.Invitation) { i.ExportNamespaces = []string{"team-*"} },
			"the invitation covers exports from namespaces team-*, not from shop: specify others with " +
				"--export-namespaces, or " + ask,
		},
		{
			"two mistakes", func(i *trust.Invitation) {
				i.Cluster = "east"
				i.Gateways = 1
			},
			`the join file is for cluster "east", not "west": join with --clusterid east, or ` + ask + "\n" +
				"the join file allows 1 gateway nodes, and this cluster would have 2: specify fewer with --gateways or --gateway-nodes, remove labels from nodes, or " + ask,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.GatewayNodes = []string{"n1", "n2"}
			s.ExportNamespaces = []string{"shop"}
			i := trust.Invitation{
				Key: brokertest.Key("invitee").Public(), Cluster: "west", Gateways: 2, Sets: []string{"default"},
				Networks: []netip.Prefix{
					netip.MustParsePrefix("10.111.0.0/16"),
					netip.MustParsePrefix("10.101.0.0/16"),
				},
				Serial: 1, Expires: time.Now().Add(time.Hour).UnixMilli(),
			}
			test.change(&i)
			invite(t, s.file, i)
			_, err := s.plan()
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

func TestCheckInvitationIsOlderThanTheGrant(t *testing.T) {
	s := normal()
	key := brokertest.Key("west")
	token, err := administrator.SignGrant(trust.Grant{Cluster: "west", Key: key.Public(), Gateways: 2, Serial: 5000})
	require.NoError(t, err)
	s.f.Trust = &cluster.Trust{Key: key, Administrator: administrator.Public(), Grant: token}
	i := trust.Invitation{
		Key: brokertest.Key("invitee").Public(), Cluster: "west", Gateways: 2, Sets: []string{"default"},
		Serial: 4000, Expires: time.Now().Add(time.Hour).UnixMilli(),
	}
	invite(t, s.file, i)
	_, err = s.plan()
	require.EqualError(
		t,
		err,
		"the join file is of 1970-01-01T00:00:04Z, and this cluster has a later grant, of 1970-01-01T00:00:05Z, "+
			"so that the other clusters would refuse a grant of the file: ask the administrator of the broker for another file (subctl invite)",
	)
	i.Serial = 5000
	invite(t, s.file, i)
	_, err = s.plan()
	require.NoError(t, err)
}

// The members do not accept a grant of an invitation from before the cluster was removed from a
// clusterset.
func TestCheckInvitationIsOlderThanARemoval(t *testing.T) {
	s := normal()
	for _, r := range []trust.Revocation{
		{Cluster: "west", Set: "default", Serial: 5000},
		{Cluster: "west", Set: "prod", Serial: 9000},
		{Cluster: "east", Set: "default", Serial: 9000},
	} {
		token, err := administrator.SignRevocation(r)
		require.NoError(t, err)
		s.b.Revocations = append(s.b.Revocations, token)
	}
	i := trust.Invitation{
		Key: brokertest.Key("invitee").Public(), Cluster: "west", Gateways: 2, Sets: []string{"default"},
		Serial: 5000, Expires: time.Now().Add(time.Hour).UnixMilli(),
	}
	invite(t, s.file, i)
	_, err := s.plan()
	require.EqualError(
		t,
		err,
		"the administrator of the broker has removed cluster west from clusterset default at 1970-01-01T00:00:05Z, after the join file was written: "+
			"ask the administrator of the broker for another file (subctl invite)",
	)
	i.Serial++
	invite(t, s.file, i)
	p, err := s.plan()
	require.NoError(t, err)
	require.NotNil(t, p)
}

// invite makes a join file the file for one cluster.
func invite(t *testing.T, f *broker.JoinFile, i trust.Invitation) {
	t.Helper()
	var err error
	f.SigningKey = brokertest.Key("invitee")
	f.Invitation, err = administrator.SignInvitation(i)
	require.NoError(t, err)
}
