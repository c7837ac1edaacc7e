package agent

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

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// Whatever another cluster publishes, nothing panics, what is accepted can be planned and
// takes nothing from anybody, and those who are connected stay so.
func FuzzEndpoint(f *testing.F) {
	sound := []string{"thief", "submariner-cable-thief-10-89-3-16", "h", "10.150.0.0/16", "10.89.3.16", "", "vxlan", "", ""}
	values := [][]string{
		{"", "east", "west", "Thief", strings.Repeat("t", 64)},
		{"", "submariner-cable-west-10-89-2-11", "submariner-cable-east-10-89-1-11", "\x00", "%s"},
		{"", "west-gw", "gw"},
		{"", "0.0.0.0/0", "10.111.0.0/16", "10.112.7.0/24", "10.89.1.0/24", "10.89.2.11/32", "10.150.0.1/16", "10.150.0.0/16\n10.150.7.0/24", "241.0.0.0/8", "::/0", "::ffff:10.150.0.0/112", "10.89.3.0/24"},
		{"", "10.89.1.11", "10.89.2.11", "11.89.2.11", "10.111.0.5", "10.101.0.5", "10.112.0.5", "127.0.0.1", "::1", "10.89.3.16%eth0"},
		{"10.89.1.11", "10.89.2.11", "10.111.0.5", "10.101.0.5", "10.112.0.5", "10.150.0.1", "0.0.0.0", "::ffff:192.0.2.1"},
		{"", " ", ",", "+", "libreswan", "vxlan+ipsec", "ipsec+vxlan", "unknown"},
		{"10.150.0.1", "10.111.1.1", "10.112.1.1", "x"},
		{"cable-drivers=", "cable-drivers= , ", "cable-drivers=vxlan,wireguard,ipsec", "vxlan-port=0", "vxlan-id=-1", "vxlan-id=99999999", "natt-discovery-port=70000", "publicKey=x"},
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
	archive, err := txtar.ParseFile(filepath.Join("../testdata/scenarios", "two-clusters.txtar"))
	require.NoError(f, err)
	objs := decode(f, archive)
	f.Fuzz(func(t *testing.T, id, name, host, subnets, private, public, backend, health, config string) {
		e := &submarinerv1.Endpoint{
			ObjectMeta: metav1.ObjectMeta{Name: "fuzz", Namespace: submarinerv1.OperatorNamespace, Labels: map[string]string{submarinerv1.ClusterIDLabel: id}},
			Spec: submarinerv1.EndpointSpec{
				ClusterID: id, CableName: name, Hostname: host, PrivateIP: private, PublicIP: public, Backend: backend, HealthCheckIP: health,
				Subnets: strings.Split(subnets, "\n"), BackendConfig: map[string]string{},
			},
		}
		for line := range strings.SplitSeq(config, "\n") {
			k, v, _ := strings.Cut(line, "=")
			e.Spec.BackendConfig[k] = v
		}
		s := NewSnapshot("gw", submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500}, true, objs...)
		before, err := newView(s)
		require.NoError(t, err)
		elder := &submarinerv1.Cluster{ // nobody has been here longer
			ObjectMeta: metav1.ObjectMeta{Name: id, Labels: e.Labels, CreationTimestamp: metav1.NewTime(time.Unix(1, 0))},
			Spec:       submarinerv1.ClusterSpec{ClusterID: id},
		}
		s = NewSnapshot("gw", s.Facts, true, append(slices.Clone(objs), elder, e)...)
		s.Held = before.held
		plan, err := Gateway{}.Plan(s)
		require.NoError(t, err)
		west := false
		for i, c := range plan.view.peers {
			west = west || c.Name == "submariner-cable-west-10-89-2-11" && c.Cluster == "west"
			requireSound(t, c.Peer, plan.view.own)
			require.True(t, c.Offers(c.Driver.Name()), "it does not offer %s", c.Driver.Name())
			for _, other := range plan.view.peers[:i] {
				require.NotEqual(t, other.Name, c.Name)
				for _, n := range c.Subnets {
					require.False(t, slices.ContainsFunc(other.Subnets, n.Overlaps) && other.Cluster != c.Cluster, "%v is taken twice", n)
				}
			}
		}
		require.True(t, west, "west was connected")
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
		require.False(t, slices.ContainsFunc(append(own.All(), p.Subnets...), func(n netip.Prefix) bool { return n.Contains(ip) }), "address %v", ip)
		require.NotContains(t, own.Nodes, ip)
	}
	for _, n := range p.Subnets {
		require.False(t, slices.ContainsFunc(append(own.All(), own.Needed...), n.Overlaps), "network %v", n)
		require.False(t, slices.ContainsFunc(own.Nodes, n.Contains), "network %v", n)
	}
}

// A mistake of ours costs the endpoint that it shows at, and nothing else.
func TestPanicIsRefusal(t *testing.T) {
	v := &view{}
	v.try(&submarinerv1.Endpoint{Spec: submarinerv1.EndpointSpec{CableName: "west"}}, func() error { panic("out of range") })
	require.Len(t, v.refused, 1)
	require.Equal(t, "west", v.refused[0].spec.CableName)
	require.ErrorContains(t, v.refused[0].err, "a mistake in subctl: please report it: out of range")
}

// Who holds a network keeps it while an agent restarts, too: that one takes over what the
// gateways report. Without a report the cluster that has been here longer gets it.
func TestHeldAfterRestart(t *testing.T) {
	for _, role := range []Role{Gateway{}, Route{}} {
		t.Run(role.Name(), func(t *testing.T) {
			gateway, w := newWorld(t, Gateway{}, "two-clusters"), newWorld(t, role, "two-clusters")
			w.Client, w.reports = gateway.Client, gateway.Client
			gateway.run(t)
			w.run(t)
			holds := w.holds(t, role.Owner())
			require.Contains(t, holds, "10.112.0.0/16")

			labels := map[string]string{submarinerv1.ClusterIDLabel: "elder"}
			require.NoError(t, w.Client.Create(t.Context(), &submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Name: "elder", Namespace: submarinerv1.OperatorNamespace, Labels: labels, CreationTimestamp: metav1.NewTime(time.Unix(1, 0))},
				Spec:       submarinerv1.ClusterSpec{ClusterID: "elder"},
			}))
			require.NoError(t, w.Client.Create(t.Context(), &submarinerv1.Endpoint{
				ObjectMeta: metav1.ObjectMeta{Name: "elder", Namespace: submarinerv1.OperatorNamespace, Labels: labels},
				Spec: submarinerv1.EndpointSpec{
					ClusterID: "elder", CableName: "submariner-cable-elder", PrivateIP: "10.89.3.1", Backend: "vxlan", Subnets: []string{"10.112.7.0/24"},
				},
			}))
			w.run(t)
			require.Equal(t, holds, w.holds(t, role.Owner()))

			w.held = nil // a restart
			w.run(t)
			require.Equal(t, holds, w.holds(t, role.Owner()))

			w.held = nil
			require.NoError(t, w.Client.Delete(t.Context(), get(t, w, &submarinerv1.Gateway{}, "gw")))
			w.run(t)
			require.Contains(t, w.holds(t, role.Owner()), "10.112.7.0/24")
		})
	}
}
