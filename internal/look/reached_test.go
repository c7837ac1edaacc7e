package look

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
	"subctl/policy/catalog"
)

func TestUnreached(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	x := catalog.Connection{
		Pair:  policy.Pair{X: policy.Cluster{ID: "east"}, Y: policy.Cluster{ID: "west"}},
		Cable: catalog.Cable{Driver: "ipsec", Policy: "a", Settings: cable.Config{"mtu": "1300"}},
	}
	none := x
	none.Cable = catalog.Cable{Err: errors.New("why")}
	site := func(id string, age time.Duration, cs ...submarinerv1.Connection) Site {
		gw := submarinerv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: "gw"},
			Status:     submarinerv1.GatewayStatus{HAStatus: submarinerv1.HAStatusActive, Connections: cs},
		}
		gw.SetReportedAt(now.Add(-age))
		standby := submarinerv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: "standby"},
			Status:     submarinerv1.GatewayStatus{HAStatus: submarinerv1.HAStatusPassive},
		}
		return Site{
			Name:       id,
			Submariner: &v1alpha1.Submariner{},
			Now:        now,
			Gateways:   []submarinerv1.Gateway{standby, gw},
		}
	}
	to := func(
		id string,
		status submarinerv1.ConnectionStatus,
		change ...func(*submarinerv1.Connection),
	) submarinerv1.Connection {
		c := submarinerv1.Connection{
			Status:         status,
			StatusMessage:  "not yet\x1b[2J",
			Driver:         "ipsec",
			Policy:         "a",
			PolicySettings: map[string]string{"mtu": "1300"},
			Endpoint:       submarinerv1.EndpointSpec{ClusterID: id},
		}
		if status == submarinerv1.Connected {
			c.StatusMessage = ""
		}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	old := func(c *submarinerv1.Connection) {
		c.Driver = "vxlan"
		c.Policy = ""
	}
	otherSettings := func(c *submarinerv1.Connection) { c.PolicySettings = nil }
	reached := site("east", 0, to("west", submarinerv1.Connected), to("cloud", submarinerv1.Connecting, old))
	for _, test := range []struct {
		name  string
		sites []Site
		x     catalog.Connection
		want  string
	}{
		{"both ends", []Site{reached, site("west", 0, to("east", submarinerv1.Connected)), site("cloud", 0)}, x, ""},
		{"one end is visible", []Site{reached}, x, ""},
		{
			"the other end is late",
			[]Site{reached, site("west", 0, to("east", submarinerv1.Connected, old))},
			x,
			"cluster west: gateway gw: uses vxlan (the clusters' own default)",
		},
		{
			"settings",
			[]Site{site("east", 0, to("west", submarinerv1.Connected, otherSettings))},
			x,
			"cluster east: gateway gw: uses ipsec (a)",
		},
		{
			"changing",
			[]Site{site("east", 0, to("west", submarinerv1.Connecting, old))},
			x,
			"cluster east: gateway gw: not yet?[2J",
		},
		{
			"connecting",
			[]Site{site("east", 0, to("west", submarinerv1.Connecting))},
			x,
			"cluster east: gateway gw: connecting: not yet?[2J",
		},
		{"no connection", []Site{site("east", 0)}, x, "cluster east: gateway gw: no connection to cluster west"},
		{
			"no gateway",
			[]Site{{Name: "east", Submariner: &v1alpha1.Submariner{}}},
			x,
			"cluster east: no gateway is active",
		},
		{"no cable wanted, none there", []Site{site("east", 0, to("west", submarinerv1.ConnectionError))}, none, ""},
		{"no cable wanted, no connection", []Site{site("east", 0)}, none, ""},
		{"no cable wanted", []Site{reached}, none, "cluster east: gateway gw: still connected by ipsec"},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, Unreached(test.sites, test.x)) })
	}
	require.Contains(t, Unreached([]Site{site("east", time.Minute, to("west", submarinerv1.Connected))}, x),
		"cluster east: gateway gw: ")
	require.Empty(t, OneEnd([]Site{reached, site("west", 0)}, x.Pair))
	require.Equal(t,
		"as cluster east reports; not checked in cluster west, of which the kubeconfig has no usable context",
		OneEnd([]Site{reached, {Name: "west"}}, x.Pair))
	require.Equal(t,
		"as cluster west reports; not checked in cluster east, of which the kubeconfig has no usable context",
		OneEnd([]Site{site("west", 0)}, x.Pair))
	require.True(t, Sees([]Site{reached}, x.Pair))
	require.False(t, Sees([]Site{site("cloud", 0), {Name: "east"}}, x.Pair), "it has not joined")
}
