package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// Whatever another cluster publishes, nothing panics, what is accepted can be planned and
// takes nothing from anybody.
func FuzzEndpoint(f *testing.F) {
	sound := []string{"thief", "submariner-cable-thief-10-89-3-16", "h", "10.150.0.0/16", "10.89.3.16", "", "vxlan", "", ""}
	f.Add(sound[0], sound[1], sound[2], sound[3], sound[4], sound[5], sound[6], sound[7], sound[8])
	for field, values := range [][]string{
		{"", "east", "west", "Thief", strings.Repeat("t", 64)},
		{"", "submariner-cable-west-10-89-2-11", "submariner-cable-east-10-89-1-11", "\x00", "%s"},
		{"", "west-gw", "gw"},
		{"", "0.0.0.0/0", "10.111.0.0/16", "10.112.7.0/24", "10.89.1.0/24", "10.89.2.11/32", "10.150.0.1/16", "10.150.0.0/16\n10.150.7.0/24", "241.0.0.0/8", "::/0", "::ffff:10.150.0.0/112", "10.89.3.0/24"},
		{"", "10.89.1.11", "10.89.2.11", "11.89.2.11", "10.111.0.5", "10.101.0.5", "10.112.0.5", "127.0.0.1", "::1", "10.89.3.16%eth0"},
		{"10.89.1.11", "10.89.2.11", "10.111.0.5", "10.101.0.5", "10.112.0.5", "10.150.0.1", "0.0.0.0", "::ffff:192.0.2.1"},
		{"", " ", ",", "+", "libreswan", "vxlan+ipsec", "ipsec+vxlan", "unknown"},
		{"10.150.0.1", "10.111.1.1", "10.112.1.1", "x"},
		{"cable-drivers=", "cable-drivers= , ", "cable-drivers=vxlan,wireguard,ipsec", "vxlan-port=0", "vxlan-id=-1", "vxlan-id=99999999", "natt-discovery-port=70000", "wireguard-public-key=x"},
	} {
		for _, v := range values {
			a := slices.Clone(sound)
			a[field] = v
			f.Add(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8])
		}
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
		s := NewSnapshot("gw", submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500}, true, append(slices.Clone(objs), e)...)
		plan, err := Gateway{}.Plan(s)
		require.NoError(t, err)
		for i, c := range plan.view.peers {
			requireSound(t, c.Peer, plan.view.own)
			require.True(t, c.Offers(c.Driver.Name()), "it does not offer %s", c.Driver.Name())
			for _, other := range plan.view.peers[:i] {
				require.NotEqual(t, other.Name, c.Name)
				for _, n := range c.Subnets {
					require.False(t, slices.ContainsFunc(other.Subnets, n.Overlaps) && other.Cluster != c.Cluster, "%v is taken twice", n)
				}
			}
		}
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
	require.NotContains(t, own.Nodes, p.PrivateIP)
	for _, n := range p.Subnets {
		require.False(t, slices.ContainsFunc(append(own.All(), own.Needed...), n.Overlaps), "network %v", n)
		require.False(t, slices.ContainsFunc(own.Nodes, n.Contains), "network %v", n)
	}
}

// A mistake of ours costs the endpoint that it shows at, and nothing else.
func TestPanicIsRefusal(t *testing.T) {
	_, err := (&view{}).safely(nil)
	require.ErrorContains(t, err, "mistake in subctl")
}
