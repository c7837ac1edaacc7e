package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// worker returns a worker of a cluster that has a gateway, and cables to n others.
func worker(n int) *mesh.Mesh {
	m := &mesh.Mesh{
		Membership: members.Membership{
			Submariner: &v1alpha1.Submariner{}, Self: cable.Node{Name: "worker"},
			Nodes: []cable.Node{{Name: "gw"}, {Name: "worker"}}, Gateways: []cable.Node{{Name: "gw"}},
		},
		Cables: mesh.Cables{Endpoints: map[string]submarinerv1.EndpointSpec{}},
	}
	m.Offer.Local.PodIP = netip.MustParseAddr("10.111.2.1")
	for i := range n {
		name := fmt.Sprintf("cluster-%03d", i)
		peer := cable.Peer{Gateway: cable.Gateway{Name: name, HealthIP: netip.MustParseAddr("10.112.1.1")}}
		m.Cables.Wanted = append(m.Cables.Wanted, cable.Cable{Peer: peer, Driver: drivers.Find("ipsec")})
		m.Cables.Endpoints[name] = submarinerv1.EndpointSpec{
			CableName:     name,
			Backend:       "vxlan",
			BackendConfig: map[string]string{"a": "b"},
		}
	}
	return m
}

func TestRemoteEndpoints(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*mesh.Mesh)
		health  *role.Health
		status  submarinerv1.ConnectionStatus
		message string
		probed  bool
	}{
		{
			name:   "connected",
			health: &role.Health{Status: submarinerv1.Connected},
			status: submarinerv1.Connected,
			probed: true,
		},
		{
			name:    "not asked yet",
			status:  submarinerv1.Connecting,
			message: "waiting for the first answer to a ping",
			probed:  true,
		},
		{
			name:    "no answer",
			health:  &role.Health{Status: submarinerv1.ConnectionError, Message: "no"},
			status:  submarinerv1.ConnectionError,
			message: "no",
			probed:  true,
		},
		{name: "off", change: func(m *mesh.Mesh) {
			m.Membership.Submariner.Spec.ConnectionHealthCheck = &v1alpha1.HealthCheckSpec{}
		}, status: submarinerv1.ConnectionNone, message: "Health check is not enabled"},
		{
			name:    "gateway",
			change:  func(m *mesh.Mesh) { m.Membership.Self.Name = "gw" },
			status:  submarinerv1.ConnectionNone,
			message: "Health check is not performed on gateway nodes",
		},
		{
			name:    "no address there",
			change:  func(m *mesh.Mesh) { m.Cables.Wanted[0].HealthIP = netip.Addr{} },
			status:  submarinerv1.ConnectionNone,
			message: "Health checker IP is not configured",
		},
		{
			name:    "no address here",
			change:  func(m *mesh.Mesh) { m.Offer.Local.PodIP = netip.Addr{} },
			status:  submarinerv1.ConnectionNone,
			message: "Health check is not performed: the node has no address in the pod network",
		},
		{
			name:    "many nodes",
			change:  func(m *mesh.Mesh) { m.Membership.Nodes = make([]cable.Node, 501) },
			status:  submarinerv1.ConnectionNone,
			message: "Health check is not performed by the nodes of a cluster of more than 500",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := worker(1)
			o := role.Outcome{}
			if test.change != nil {
				test.change(m)
			}
			if test.health != nil {
				o.Health = map[string]role.Health{"cluster-000": *test.health}
			}
			require.Equal(t, []submarinerv1.RemoteEndpoint{{
				Status: test.status, StatusMessage: test.message,
				Spec: submarinerv1.EndpointSpec{CableName: "cluster-000", Backend: "ipsec", Subnets: []string{}},
			}}, listed(RemoteEndpoints(mesh.Plan{Mesh: m}, o)))
			w := m.Cables.Wanted[0]
			require.Equal(t, test.probed, mesh.Unprobed(m.Membership, m.Offer.Local.PodIP, w.HealthIP) == "")
		})
	}
}

// listed returns the endpoints of a report.
func listed(list []submarinerv1.RemoteEndpoint, _ int) []submarinerv1.RemoteEndpoint { return list }

// An endpoint that waits for what is not known yet is reported, too, as gateways report it.
func TestRemoteEndpointsThatWait(t *testing.T) {
	m := worker(1)
	m.Cables.Pending = []mesh.Refusal{
		{
			Spec: submarinerv1.EndpointSpec{CableName: "new", Backend: "vxlan"},
			Err:  errors.New("its Cluster object is not there yet"),
		},
	}
	got, omitted := RemoteEndpoints(mesh.Plan{Mesh: m}, role.Outcome{Health: map[string]role.Health{"cluster-000": {Status: submarinerv1.Connected}}})
	require.Len(t, got, 2)
	require.Zero(t, omitted)
	require.Equal(t, submarinerv1.RemoteEndpoint{
		Status:        submarinerv1.Connecting,
		StatusMessage: "its Cluster object is not there yet",
		Spec:          submarinerv1.EndpointSpec{CableName: "new", Subnets: []string{}},
	}, got[0])
}

// What is wrong is not cut off.
func TestRemoteEndpointsAreLimited(t *testing.T) {
	m := worker(100)
	o := role.Outcome{Health: map[string]role.Health{}}
	for _, c := range m.Cables.Wanted {
		o.Health[c.Name] = role.Health{Status: submarinerv1.Connected}
	}
	o.Health["cluster-077"] = role.Health{Status: submarinerv1.ConnectionError}
	m.Cables.Refused = []mesh.Refusal{{Spec: submarinerv1.EndpointSpec{CableName: "z"}, Err: fmt.Errorf("overlaps")}}
	got, omitted := RemoteEndpoints(mesh.Plan{Mesh: m}, o)
	require.Len(t, got, maxRemote)
	require.Equal(t, 101-maxRemote, omitted)
	require.Equal(t, []string{"cluster-077", "z", "cluster-000"},
		[]string{got[0].Spec.CableName, got[1].Spec.CableName, got[2].Spec.CableName})
	require.Equal(t, "refused: overlaps", got[1].StatusMessage)
}

// A hostile member makes the report of every node as large as it can, and changes it all the time.
func TestRemoteEndpointsAreSmall(t *testing.T) {
	m := worker(0)
	for i := range 100 {
		e := submarinerv1.EndpointSpec{
			CableName: fmt.Sprintf("%0253d", i),
			Hostname:  strings.Repeat("h", 253),
			Backend:   strings.Repeat("b", 64),
		}
		for range 128 {
			e.Subnets = append(e.Subnets, strings.Repeat("9", 64))
		}
		m.Cables.Refused = append(m.Cables.Refused,
			mesh.Refusal{Spec: e, Err: errors.New(strings.Repeat("overlaps ", 1000))})
	}
	text, err := json.Marshal(listed(RemoteEndpoints(mesh.Plan{Mesh: m}, role.Outcome{})))
	require.NoError(t, err)
	require.Less(t, len(text), 64<<10)
}

// The same, with all that the schema allows: the admission policy of the route agents has room for
// it, and for the rest of a report.
func TestRemoteEndpointsOfLargeCharacters(t *testing.T) {
	m := worker(0)
	text := func(n int) string { return strings.Repeat("😀", n) }
	for range 100 {
		e := submarinerv1.EndpointSpec{
			ClusterID:     text(63),
			CableName:     text(253),
			HealthCheckIP: text(64),
			Hostname:      text(253),
			PrivateIP:     text(64),
			PublicIP:      text(64),
			Backend:       text(63),
			Subnets:       slices.Repeat([]string{text(64)}, 128),
			AllocatedIPs:  slices.Repeat([]string{text(64)}, 64),
			BackendConfig: map[string]string{"a": text(1000)},
		}
		m.Cables.Refused = append(m.Cables.Refused, mesh.Refusal{Spec: e, Err: errors.New(text(1000))})
	}
	report, err := json.Marshal(listed(RemoteEndpoints(mesh.Plan{Mesh: m}, role.Outcome{})))
	require.NoError(t, err)
	require.Less(t, len(report), 112<<10)
}
