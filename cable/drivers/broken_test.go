package drivers_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// oneEach returns a gateway with a cable of each driver, to a cluster each.
func oneEach(t *testing.T) cable.Cabling {
	t.Helper()
	c := cable.Cabling{Local: local(1)}
	for i, d := range all() {
		c.Peers = append(c.Peers, cable.Cable{Peer: peer(t, byte(2+i)), Driver: d})
	}
	return c
}

// Whatever object of a gateway's plan the kernel refuses: broken are the cables whose plan
// would have the object if the gateway had no other cable. An object that all of them would
// have is one of the node.
func TestBroken(t *testing.T) {
	c := oneEach(t)
	plan, links, err := cable.Plan(c)
	require.NoError(t, err)
	var alone []dataplane.State
	for _, one := range c.Peers {
		s, _, err := cable.Plan(cable.Cabling{Local: c.Local, Peers: []cable.Cable{one}})
		require.NoError(t, err)
		alone = append(alone, s)
	}
	for k := range plan {
		f := dataplanetest.Fake{Refuse: func(o dataplane.Object) error {
			if o.Key() == k {
				return errors.New("refused")
			}
			return nil
		}}
		_, err := dataplane.Sync(t.Context(), &f, plan)
		var d *dataplane.DriftError
		require.ErrorAs(t, err, &d)
		broken, _, others := cable.Broken(plan, c.Peers, links, d)
		shared := true
		// the chains, without which no device carries packets, wait for the table that drops IPv6
		if k == dataplane.RulesetKey("ip6", dataplane.GatewayOwner.Antispoof) {
			require.Len(t, others, 1, k)
			continue
		}
		for _, s := range alone {
			shared = shared && s[k] != nil
		}
		if shared {
			require.Len(t, others, 1, k)
			require.Equal(t, k, others[0].Key)
			continue
		}
		require.Empty(t, others, k)
		for i, s := range alone {
			require.Equal(t, s[k] != nil, len(broken[i]) > 0, "%v is refused: is the %s cable broken?", k,
				c.Peers[i].Driver.Name())
		}
	}
}

// VXLAN packets that IPsec is to encrypt have no destination while the policy that blocks them
// otherwise cannot be set: they would leave in clear text.
func TestNoDestinationWithoutBlock(t *testing.T) {
	plan, _, err := cable.Plan(oneEach(t))
	require.NoError(t, err)
	refused := true
	f := dataplanetest.Fake{Refuse: func(o dataplane.Object) error {
		if _, block := o.(dataplane.IPsecBlock); block && refused {
			return errors.New("refused")
		}
		return nil
	}}
	destinations := func() (devices []string) {
		held, err := f.Observe(t.Context())
		require.NoError(t, err)
		for _, o := range held.Sorted() {
			if entry, ok := o.(dataplane.FDB); ok {
				devices = append(devices, entry.Dev)
			}
		}
		return devices
	}
	_, err = dataplane.Sync(t.Context(), &f, plan)
	require.ErrorIs(t, err, dataplane.ErrDrift)
	require.NotContains(t, destinations(), dataplane.VXLANIPsecDevice)
	require.Contains(t, destinations(), dataplane.VXLANDevice)
	refused = false
	_, err = dataplane.Sync(t.Context(), &f, plan)
	require.NoError(t, err)
	require.Contains(t, destinations(), dataplane.VXLANIPsecDevice)
}

// An idle cable does not depend on the routes, which lead to another.
func TestBrokenIdle(t *testing.T) {
	c := oneEach(t)
	c.Peers = c.Peers[:2]
	c.Peers[1].Peer = c.Peers[0].Peer
	c.Peers[1].Idle = true
	plan, links, err := cable.Plan(c)
	require.NoError(t, err)
	route := dataplane.Route{Table: dataplane.CableTable, Dst: c.Peers[0].Subnets[0]}
	why := &dataplane.Failure{Key: route.Key(), Err: errors.New("refused")}
	broken, _, others := cable.Broken(plan, c.Peers, links, &dataplane.DriftError{
		Failures: []*dataplane.Failure{why}, Affected: map[dataplane.Key][]*dataplane.Failure{why.Key: {why}},
	})
	require.Empty(t, others)
	require.Equal(t, [][]*dataplane.Failure{{why}, nil}, broken)
}

// A detour that the kernel refuses breaks no cable: it is used only when a cable has no device.
// Neither does the next hop to another gateway of the cluster, unless the packets of a cable take
// it.
func TestBrokenDetour(t *testing.T) {
	sibling := cable.Node{Name: "sibling", IP: netip.MustParseAddr("172.18.9.9")}
	for name, down := range map[string]bool{"cables answer": false, "the first one does not": true} {
		t.Run(name, func(t *testing.T) {
			c := oneEach(t)
			c.Peers[0].Down = down
			c.Siblings = map[string][]cable.Node{}
			for _, p := range c.Peers {
				c.Siblings[p.Cluster] = []cable.Node{sibling}
			}
			plan, links, err := cable.Plan(c)
			require.NoError(t, err)
			require.NoError(t, plan.Add(dataplane.VXLAN{
				Name:  dataplane.IntraDevice,
				MAC:   "0a:58:00:00:00:01",
				VNI:   dataplane.IntraVNI,
				Local: c.Local.PrivateIP,
				Port:  dataplane.IntraPort,
				MTU:   1450,
				// of the route agent
			}, dataplane.Addr{Dev: dataplane.IntraDevice, Prefix: netip.MustParsePrefix("240.18.0.1/8")}))
			var detour, hop dataplane.Key
			for k, o := range plan {
				if d, is := o.(dataplane.Detour); is && d.Dst == c.Peers[0].Subnets[0] {
					detour = k
					hop = d.Needs()[0]
				}
			}
			for _, refused := range []dataplane.Key{detour, hop} {
				f := dataplanetest.Fake{Refuse: func(o dataplane.Object) error {
					if o.Key() == refused {
						return errors.New("refused")
					}
					return nil
				}}
				_, err := dataplane.Sync(t.Context(), &f, plan)
				var d *dataplane.DriftError
				require.ErrorAs(t, err, &d)
				broken, detours, others := cable.Broken(plan, c.Peers, links, d)
				require.Empty(t, others, refused)
				used := down && refused == hop
				require.Equal(t, used, len(broken[0]) > 0, "%v: %v", refused, broken[0])
				require.Equal(t, !used, len(detours) > 0, refused)
				for _, fs := range broken[1:] {
					require.Empty(t, fs, refused)
				}
			}
		})
	}
}
