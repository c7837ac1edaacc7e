package report

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
)

// The result of pings counts; where older keys still carry the traffic, the cable's own
// state tells that it is so.
func TestStatus(t *testing.T) {
	const refused = "NO_PROPOSAL_CHOSEN: both need one in common"
	link := cable.Link{State: "west", StateDevice: dataplane.IPsecDevice}
	c := cable.Cable{Peer: cable.Peer{Gateway: cable.Gateway{Name: "west"}}}
	for _, test := range []struct {
		name    string
		health  submarinerv1.ConnectionStatus // empty: not answered yet
		state   dataplane.CableState
		status  submarinerv1.ConnectionStatus
		message string
	}{
		{"connected", submarinerv1.Connected, dataplane.CableState{Up: true}, submarinerv1.Connected, ""},
		{
			"connected, new settings refused",
			submarinerv1.Connected,
			dataplane.CableState{Up: true, Message: refused},
			submarinerv1.Connected,
			"still with the previous settings: " + refused,
		},
		{
			"no keys yet",
			"",
			dataplane.CableState{},
			submarinerv1.Connecting,
			"no keys were agreed on with the other side yet",
		},
		{"no keys, known why", "", dataplane.CableState{Message: refused}, submarinerv1.Connecting, refused},
		{
			"no keys any more",
			submarinerv1.ConnectionError,
			dataplane.CableState{Message: refused},
			submarinerv1.ConnectionError,
			refused,
		},
		{
			"keys, no answer yet",
			"",
			dataplane.CableState{Up: true},
			submarinerv1.Connecting,
			"waiting for the first answer to a ping",
		},
		{
			"keys, no answer any more",
			submarinerv1.ConnectionError,
			dataplane.CableState{Up: true},
			submarinerv1.ConnectionError,
			"no answer",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.state.Device = link.StateDevice
			test.state.Peer = link.State
			m := &mesh.Mesh{Snapshot: role.Snapshot{Cables: []dataplane.CableState{test.state}}}
			health := map[string]role.Health{}
			if test.health != "" {
				health["west"] = role.Health{Status: test.health}
			}
			if test.health == submarinerv1.ConnectionError {
				health["west"] = role.Health{Status: test.health, Message: "no answer"}
			}
			p := mesh.Plan{
				Traffic: mesh.Traffic{Installed: []cable.Cable{c}},
				Mesh:    m,
				Plan:    role.Plan{Probes: role.Probes{Targets: map[string]role.Target{"west": {}}}},
				Links:   []cable.Link{link},
			}
			status, message, _ := result(p, role.Outcome{Health: health}, 0).status()
			require.Equal(t, test.status, status)
			require.Equal(t, test.message, message)
		})
	}
}

// Where the health check is off, or an address is missing, the frequent probes of a cluster with
// several ways decide, and the message does not deny them.
func TestStatusWithoutAHealthCheck(t *testing.T) {
	c := cable.Cable{Peer: cable.Peer{Gateway: cable.Gateway{Name: "west"}}, Driver: drivers.Find("vxlan")}
	probe := role.ProbeName("west", c.Device())
	var rtt role.RTT
	rtt.Add(time.Millisecond)
	for _, test := range []struct {
		name    string
		fast    bool
		health  map[string]role.Health
		status  submarinerv1.ConnectionStatus
		message string
		rtt     *submarinerv1.LatencyRTT
	}{
		{
			"one way",
			false,
			nil,
			submarinerv1.Connected,
			"not probed: the health check is off, or one of the gateways has no address in its pod network",
			nil,
		},
		{"several, not answered yet", true, nil, submarinerv1.Connecting, waitingForPing, nil},
		{
			"several, answered",
			true,
			map[string]role.Health{probe: {Status: submarinerv1.Connected, RTT: rtt}},
			submarinerv1.Connected,
			"",
			rtt.Reported(),
		},
		{
			"several, down",
			true,
			map[string]role.Health{probe: {Status: submarinerv1.ConnectionError, Message: "lost"}},
			submarinerv1.ConnectionError,
			"lost",
			nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := mesh.Plan{
				Traffic: mesh.Traffic{Installed: []cable.Cable{c}},
				Mesh:    &mesh.Mesh{},
				Plan:    role.Plan{Probes: role.Probes{Targets: map[string]role.Target{probe: {Fast: test.fast}}}},
				Links:   []cable.Link{{}},
			}
			o := role.Outcome{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Health: test.health}
			status, message, rtt := result(p, o, 0).status()
			require.Equal(t, test.status, status)
			require.Equal(t, test.message, message)
			require.Equal(t, test.rtt, rtt)
			require.Equal(t, test.rtt != nil, Connections(p, o)[0].LastContact != nil)
		})
	}
}

// A connection keeps its last failure once it is over, also after a restart of the agent, until
// there is another one.
func TestLastFailure(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)
	c := cable.Cable{Peer: cable.Peer{Gateway: cable.Gateway{Name: "west"}}, Driver: drivers.Find("vxlan")}
	probe := role.ProbeName("west", c.Device())
	m := &mesh.Mesh{Cables: mesh.Cables{Endpoints: map[string]submarinerv1.EndpointSpec{"west": {CableName: "west"}}}}
	p := mesh.Plan{
		Traffic: mesh.Traffic{Installed: []cable.Cable{c}},
		Mesh:    m,
		Plan:    role.Plan{Probes: role.Probes{Targets: map[string]role.Target{probe: {Fast: true}}}},
		Links:   []cable.Link{{}},
	}
	failure := func(by string, from, to time.Duration) *submarinerv1.CableFailure {
		at := func(d time.Duration) metav1.Time { return metav1.NewTime(began.Add(d).Truncate(time.Second)) }
		return &submarinerv1.CableFailure{DetectedBy: by, DetectedAt: at(from), RecoveredAt: at(to)}
	}
	for _, step := range []struct {
		name   string
		health role.Health
		failed *submarinerv1.CableFailure
	}{
		{"none yet", role.Health{Status: submarinerv1.Connected}, nil},
		{"down", role.Health{Status: submarinerv1.ConnectionError, By: "echo", Since: began}, nil},
		{
			"up",
			role.Health{Status: submarinerv1.Connected, By: "echo", Since: began, Back: began.Add(time.Minute)},
			failure("echo", 0, time.Minute),
		},
		{
			"the next agent has not probed yet",
			role.Health{Status: submarinerv1.Connecting},
			failure("echo", 0, time.Minute),
		},
		{"the next agent has probed", role.Health{Status: submarinerv1.Connected}, failure("echo", 0, time.Minute)},
		{
			"down again",
			role.Health{
				Status: submarinerv1.ConnectionError,
				By:     "ping",
				Since:  began.Add(time.Hour),
				Back:   began.Add(time.Minute),
			},
			nil,
		},
		{
			"up again",
			role.Health{
				Status: submarinerv1.Connected,
				By:     "ping",
				Since:  began.Add(time.Hour),
				Back:   began.Add(2 * time.Hour),
			},
			failure("ping", time.Hour, 2*time.Hour),
		},
	} {
		conn := Connections(p, role.Outcome{Now: began, Health: map[string]role.Health{probe: step.health}})[0]
		require.Equal(t, step.failed, conn.LastFailure, step.name)
		require.Equal(t, step.health.Status == submarinerv1.ConnectionError, conn.DetectedBy != "", step.name)
		report := &submarinerv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace},
		}
		report.Status.Connections = []submarinerv1.Connection{conn}
		m.Snapshot = role.NewSnapshot("gw", report)
	}
}

// A connection reports the driver in use where upstream's tools look for it, the driver that
// it should use, and what the kernel counted.
func TestWhatAConnectionReports(t *testing.T) {
	shook := time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)
	peer := cable.Peer{
		Gateway: cable.Gateway{Name: "west", Cluster: "west", PrivateIP: netip.MustParseAddr("10.89.2.11")},
	}
	m := &mesh.Mesh{
		Snapshot: role.Snapshot{
			Cables: []dataplane.CableState{
				{Device: dataplane.IPsecDevice, Peer: "west", Up: true, Rx: 7, Tx: math.MaxUint64, Handshake: shook},
			},
		},
		Cables: mesh.Cables{
			Endpoints: map[string]submarinerv1.EndpointSpec{"west": {CableName: "west", Backend: "vxlan"}},
		},
	}
	used := cable.Cable{Peer: peer, Driver: drivers.Find("ipsec")}
	next := cable.Cable{Peer: peer, Driver: drivers.Find("wireguard")}
	next.Idle = true
	p := mesh.Plan{
		Traffic: mesh.Traffic{Installed: []cable.Cable{used, next}, Using: map[string]role.Using{"west": {Driver: "ipsec"}}},
		Links:   []cable.Link{{State: "west", StateDevice: dataplane.IPsecDevice}, {}}, Mesh: m,
	}
	c := Connections(p, role.Outcome{})[0]
	require.Equal(t, []string{"ipsec", "ipsec", "wireguard"}, []string{c.Endpoint.Backend, c.Driver, c.DesiredDriver})
	require.Equal(t, []int64{7, math.MaxInt64}, []int64{*c.ReceivedBytes, *c.SentBytes})
	require.True(t, c.LastHandshake.Equal(&metav1.Time{Time: shook.Truncate(time.Second)}))

	require.Equal(t, c.LastHandshake, c.LastContact, "no ping was answered yet")

	p.Installed = p.Installed[:1]
	m.Snapshot.Cables = nil
	answered := Connections(p, role.Outcome{
		Now:    shook.Add(time.Minute),
		Health: map[string]role.Health{"west": {Status: submarinerv1.Connected}},
	})[0]
	require.Equal(t, shook.Add(time.Minute).Truncate(time.Second), answered.LastContact.Time)
	report := &submarinerv1.Gateway{
		Status: submarinerv1.GatewayStatus{Connections: []submarinerv1.Connection{answered}},
	}
	m.Snapshot = role.NewSnapshot("gw", report)
	silent := Connections(p, role.Outcome{
		Now:    shook.Add(time.Hour),
		Health: map[string]role.Health{"west": {Status: submarinerv1.ConnectionError}},
	})[0]
	require.Equal(t, answered.LastContact, silent.LastContact, "also after a restart")
	m.Snapshot = role.Snapshot{}

	probe := role.ProbeName("west", dataplane.IPsecDevice)
	found := role.Outcome{Health: map[string]role.Health{
		"west": {
			Status: submarinerv1.Connected,
		}, probe: {Status: submarinerv1.ConnectionError, Message: "it forwards no packets", By: "echo", Since: shook},
	}}
	require.Empty(t, Connections(p, found)[0].DetectedBy, "there is one way to the cluster")
	p.Probes.Targets = map[string]role.Target{"west": {}, probe: {Fast: true}}
	down := Connections(p, found)[0]
	require.Equal(t, []string{"error", "it forwards no packets", "echo"},
		[]string{string(down.Status), down.StatusMessage, down.DetectedBy}, "although the gateway answers pings")
	require.Equal(t, shook.Truncate(time.Second), down.DetectedAt.Time)
	p.Probes.Targets = nil

	later := Connections(p, role.Outcome{})[0]
	require.Equal(t, "ipsec", later.DesiredDriver, "the change is over")
	require.Nil(t, later.ReceivedBytes, "not known")
	require.Nil(t, later.LastHandshake)

	c.DesiredDriver = later.DesiredDriver
	c.Status = later.Status
	c.StatusMessage = later.StatusMessage
	own, others := gatewayChanges(submarinerv1.GatewayStatus{Connections: []submarinerv1.Connection{c}},
		submarinerv1.GatewayStatus{Connections: []submarinerv1.Connection{later}})
	require.False(t, own, "counters must not make a gateway write more often")
	require.Empty(t, others)
}
