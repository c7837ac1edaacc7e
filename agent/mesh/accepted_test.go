package mesh_test

import (
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/internal/kubetest"
)

// Whatever another cluster publishes, nothing panics, what is accepted can be planned and
// takes nothing from anybody, and those who are connected stay so.
func FuzzEndpoint(f *testing.F) {
	sound := []string{
		"thief", "submariner-cable-thief-10-89-3-16", "h", "10.150.0.0/16", "10.89.3.16", "", "vxlan", "", "",
	}
	values := [][]string{
		{"", "east", "west", "Thief", strings.Repeat("t", 64)},
		{"", "submariner-cable-west-10-89-2-11", "submariner-cable-east-10-89-1-11", "\x00", "%s"},
		{"", "west-gw", "gw"},
		{
			"",
			"0.0.0.0/0",
			"10.111.0.0/16",
			"10.112.7.0/24",
			"10.89.1.0/24",
			"10.89.2.11/32",
			"10.150.0.1/16",
			"10.150.0.0/16\n10.150.7.0/24",
			"241.0.0.0/8",
			"::/0",
			"::ffff:10.150.0.0/112",
			"10.89.3.0/24",
		},
		{
			"",
			"10.89.1.11",
			"10.89.2.11",
			"11.89.2.11",
			"10.111.0.5",
			"10.101.0.5",
			"10.112.0.5",
			"127.0.0.1",
			"::1",
			"10.89.3.16%eth0",
		},
		{
			"10.89.1.11",
			"10.89.2.11",
			"10.111.0.5",
			"10.101.0.5",
			"10.112.0.5",
			"10.150.0.1",
			"0.0.0.0",
			"::ffff:192.0.2.1",
		},
		{"", " ", ",", "+", "libreswan", "vxlan+ipsec", "ipsec+vxlan", "unknown"},
		{"10.150.0.1", "10.111.1.1", "10.112.1.1", "x"},
		{
			"cable-drivers=",
			"cable-drivers= , ",
			"cable-drivers=vxlan,wireguard,ipsec",
			"vxlan-port=0",
			"vxlan-id=-1",
			"vxlan-id=99999999",
			"natt-discovery-port=70000",
			"publicKey=x",
		},
	}
	seed := func(a []string) { f.Add(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]) }
	seed(sound)
	for field := range values {
		for _, v := range values[field] {
			a := slices.Clone(sound)
			a[field] = v
			seed(a)
		}
	}
	random := rand.New(rand.NewPCG(1, 1)) // several of them at once
	for range 300 {
		a := slices.Clone(sound)
		for range 2 + random.IntN(3) {
			field := random.IntN(len(a))
			a[field] = values[field][random.IntN(len(values[field]))]
		}
		seed(a)
	}
	archive, err := txtar.ParseFile(filepath.Join("../../testdata/scenarios", "two-clusters.txtar"))
	require.NoError(f, err)
	objs := kubetest.Decode(f, archive)
	f.Fuzz(func(t *testing.T, id, name, host, subnets, private, public, backend, health, config string) {
		e := &submarinerv1.Endpoint{
			ObjectMeta: metav1.ObjectMeta{
				Name:      "fuzz",
				Namespace: submarinerv1.OperatorNamespace,
				Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
			},
			Spec: submarinerv1.EndpointSpec{
				ClusterID:     id,
				CableName:     name,
				Hostname:      host,
				PrivateIP:     private,
				PublicIP:      public,
				Backend:       backend,
				HealthCheckIP: health,
				Subnets:       strings.Split(subnets, "\n"),
				BackendConfig: map[string]string{},
			},
		}
		for line := range strings.SplitSeq(config, "\n") {
			k, v, _ := strings.Cut(line, "=")
			e.Spec.BackendConfig[k] = v
		}
		s := snapshotOf(objs...)
		before, err := Of(s)
		require.NoError(t, err)
		elder := &submarinerv1.Cluster{ // nobody has been here longer
			ObjectMeta: metav1.ObjectMeta{
				Name:   id,
				Labels: e.Labels,
				Annotations: map[string]string{
					submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet,
				},
				CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
			},
			Spec: submarinerv1.ClusterSpec{ClusterID: id},
		}
		s = snapshotOf(append(slices.Clone(objs), elder, e)...)
		s.Memory.Incumbents = before.Accepted.Incumbents
		plan, err := PlanGateway(s)
		require.NoError(t, err)
		west := false
		for i, c := range plan.Mesh.Cables.Wanted {
			west = west || c.Name == "submariner-cable-west-10-89-2-11" && c.Cluster == "west"
			requireSound(t, c.Peer, plan.Mesh.Membership.Own)
			require.True(t, c.Offers(c.Driver.Name()), "it does not offer %s", c.Driver.Name())
			for _, other := range plan.Mesh.Cables.Wanted[:i] {
				require.NotEqual(t, other.Name, c.Name)
				for _, n := range c.Subnets {
					require.False(t, slices.ContainsFunc(other.Subnets, n.Overlaps) && other.Cluster != c.Cluster,
						"%v is taken twice", n)
				}
			}
		}
		require.True(t, west || id == "west", "west was connected") // what west announces of itself may disconnect it
	})
}

// requireSound checks what every accepted gateway must be.
func requireSound(t *testing.T, p cable.Peer, own cable.Networks) {
	t.Helper()
	require.NotEmpty(t, p.Cluster)
	require.NotEqual(t, "east", p.Cluster)
	require.NotEmpty(t, p.Name)
	require.NotEmpty(t, p.Default)
	require.NotEmpty(t, p.Drivers)
	require.NotEmpty(t, p.Subnets)
	for _, ip := range []netip.Addr{p.PrivateIP, p.PublicIP} {
		require.False(t,
			slices.ContainsFunc(append(own.All(), p.Subnets...), func(n netip.Prefix) bool { return n.Contains(ip) }),
			"address %v", ip)
		require.NotContains(t, own.Nodes, ip)
	}
	for _, n := range p.Subnets {
		require.False(t, slices.ContainsFunc(append(own.All(), own.Needed...), n.Overlaps), "network %v", n)
		require.False(t, slices.ContainsFunc(own.Nodes, n.Contains), "network %v", n)
	}
}

// A mistake in subctl costs the endpoint that it shows at, and nothing else.
func TestPanicIsRefusal(t *testing.T) {
	var a Accepted
	a.Try(&submarinerv1.Endpoint{Spec: submarinerv1.EndpointSpec{CableName: "west"}},
		func() error { panic("out of range") })
	require.Len(t, a.Refused, 1)
	require.Equal(t, "west", a.Refused[0].Spec.CableName)
	require.ErrorContains(t, a.Refused[0].Err, "internal error in subctl while processing it; please report it: out of range")
}

// snapshotOf returns the snapshot of the active gateway of cluster east.
func snapshotOf(objs ...client.Object) role.Snapshot {
	s := role.NewSnapshot("gw", objs...)
	s.Facts = submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500}
	s.Standing = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}}
	return s
}
