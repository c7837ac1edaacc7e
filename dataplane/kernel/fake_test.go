//go:build linux

package kernel

import (
	"context"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"

	"github.com/stretchr/testify/require"
)

// The fake refuses what the kernel refuses, and removes with an object what the kernel removes.
func TestFakeAgrees(t *testing.T) {
	const dev, mac, peer = dataplane.VXLANDevice, "0a:58:ac:12:00:02", "0a:58:ac:12:00:03"
	base := state(t, one()...)
	get := func(kind dataplane.Kind, name string) dataplane.Object {
		o := base[dataplane.Key{Kind: kind, Name: name}]
		require.NotNil(t, o, name)
		return o
	}
	link := get(dataplane.KindLink, dev).(dataplane.VXLAN)
	change := func(f func(*dataplane.VXLAN)) dataplane.Op {
		v := link
		f(&v)
		return dataplane.Op{Old: link, New: v}
	}
	put := func(o dataplane.Object) dataplane.Op { return dataplane.Op{Old: base[o.Key()], New: o} }
	del := func(o dataplane.Object) dataplane.Op { return dataplane.Op{Old: o} }
	hop := dataplane.Nexthop{ID: 0x10000001, Via: ip("241.18.0.3"), Dev: dev}
	two := []dataplane.Member{{ID: 0x10000001, Weight: 1}, {ID: 0x10000002, Weight: 1}}
	long := strings.Repeat("X", 32)

	alter := func(f func(*dataplane.WireGuard)) dataplane.Op {
		w := wgDevice()
		f(&w)
		return put(w)
	}
	turn := func(f func(*dataplane.WireGuardPeer)) dataplane.Op {
		p := wgPeer(1, "172.18.0.3:4501", "10.1.0.0/16", "244.18.0.3/32")
		f(&p)
		return put(p)
	}

	for name, c := range map[string]struct {
		op      dataplane.Op
		refused bool
	}{
		"device goes":                {op: del(link)},
		"device of another port":     {op: change(func(v *dataplane.VXLAN) { v.Port++ })},
		"device with another local":  {op: change(func(v *dataplane.VXLAN) { v.Local = v.Local.Next() })},
		"device with another MAC":    {op: change(func(v *dataplane.VXLAN) { v.MAC = "0a:58:ac:12:00:09" })},
		"device with another MTU":    {op: change(func(v *dataplane.VXLAN) { v.MTU = 1400 })},
		"device with other settings": {op: change(func(v *dataplane.VXLAN) { v.Conf.RPFilter = 1 })},
		"device over another": {op: change(func(v *dataplane.VXLAN) {
			v.Dev = wg
			v.MTU = 1390
		})},
		"device over nothing": {
			op: change(func(v *dataplane.VXLAN) { v.Dev = dataplane.IPsecDevice }), refused: true,
		},
		"device without an MTU": {op: change(func(v *dataplane.VXLAN) { v.MTU = 20 }), refused: true},
		"device with a bad MAC": {op: change(func(v *dataplane.VXLAN) { v.MAC = "x" }), refused: true},
		"last address goes":     {op: del(get(dataplane.KindAddr, dev+" 241.18.0.2/8"))},
		"second address":        {op: put(dataplane.Addr{Dev: dev, Prefix: cidr("10.99.0.1/32")})},
		"address, no device": {
			op: put(dataplane.Addr{Dev: dataplane.IntraDevice, Prefix: cidr("240.0.0.1/8")}), refused: true,
		},
		"fdb entry":       {op: put(dataplane.FDB{Dev: dev, MAC: mac, Dst: ip("172.18.0.9")})},
		"fdb entry moves": {op: put(dataplane.FDB{Dev: dev, MAC: peer, Dst: ip("172.18.0.9")})},
		"fdb entry that floods": {
			op: put(dataplane.FDB{Dev: dev, MAC: "00:00:00:00:00:00", Dst: ip("172.18.0.9")}),
		},
		"fdb entry, no device": {
			op: put(dataplane.FDB{Dev: dataplane.IntraDevice, MAC: mac, Dst: ip("172.18.0.9")}), refused: true,
		},
		"fdb entry to nowhere": {op: put(dataplane.FDB{Dev: dev, MAC: mac}), refused: true},
		"neighbour":            {op: put(dataplane.Neigh{Dev: dev, IP: ip("241.18.0.9"), MAC: mac})},
		"neighbour, bad MAC": {
			op: put(dataplane.Neigh{Dev: dev, IP: ip("241.18.0.9"), MAC: "x"}), refused: true,
		},
		"next hop goes":            {op: del(hop)},
		"next hop moves":           {op: put(dataplane.Nexthop{ID: hop.ID, Via: ip("241.18.0.9"), Dev: dev})},
		"next hop to other device": {op: put(dataplane.Nexthop{ID: hop.ID, Via: ip("172.18.0.9"), Dev: "eth0"})},
		"next hop beyond the network": {
			op: put(dataplane.Nexthop{ID: hop.ID, Via: ip("203.0.113.1"), Dev: dev}), refused: true,
		},
		"next hop that is ourselves": {op: put(dataplane.Nexthop{ID: hop.ID, Via: ip("241.18.0.2"), Dev: dev})},
		"group goes":                 {op: del(dataplane.Group{ID: 0x1f000001})},
		"group of others":            {op: put(dataplane.Group{ID: 0x1f000001, Members: two[:1]})},
		"group turns resilient":      {op: put(dataplane.Group{ID: 0x1f000001, Members: two, Buckets: 8})},
		"group turns plain":          {op: put(dataplane.Group{ID: 0x1f000002, Members: two})},
		"group of other buckets": {
			op: put(dataplane.Group{ID: 0x1f000002, Members: two, Buckets: 64, Idle: time.Second}),
		},
		"group with other timer": {
			op: put(dataplane.Group{ID: 0x1f000002, Members: two, Buckets: 32, Idle: time.Second}),
		},
		"group with a fine timer": {
			op: put(dataplane.Group{ID: 0x1f000002, Members: two, Buckets: 32, Idle: time.Millisecond}), refused: true,
		},
		"group of nobody": {op: put(dataplane.Group{ID: 0x1f000001}), refused: true},
		"group of unknown": {
			op:      put(dataplane.Group{ID: 0x1f000001, Members: []dataplane.Member{{ID: 0x10000077, Weight: 1}}}),
			refused: true,
		},
		"group with one twice": {
			op: put(dataplane.Group{ID: 0x1f000001, Members: []dataplane.Member{two[0], two[0]}}), refused: true,
		},
		"group with no weight": {
			op: put(dataplane.Group{ID: 0x1f000001, Members: []dataplane.Member{{ID: hop.ID}}}), refused: true,
		},
		"group, great weight": {
			op:      put(dataplane.Group{ID: 0x1f000001, Members: []dataplane.Member{{ID: hop.ID, Weight: 257}}}),
			refused: true,
		},
		"route to other group": {
			op: put(dataplane.Route{Table: dataplane.CableTable, Dst: cidr("10.1.0.0/16"), Group: 0x1f000002}),
		},
		"route to nowhere": {
			op:      put(dataplane.Route{Table: dataplane.CableTable, Dst: cidr("10.7.0.0/16"), Group: 0x1f000077}),
			refused: true,
		},
		"route with bits": {
			op:      put(dataplane.Route{Table: dataplane.CableTable, Dst: cidr("10.7.0.1/16"), Group: 0x1f000001}),
			refused: true,
		},
		"rule to other table": {op: put(dataplane.Rule{Priority: 100, Table: dataplane.CableTable + 1})},
		"rule, long device name": {
			op: put(dataplane.Arrival{Priority: 102, Table: dataplane.CableTable + 1, Dev: long}), refused: true,
		},
		"set, long name":          {op: put(dataplane.Set{Name: "SUBMARINER-GW-" + long}), refused: true},
		"set, member of length 0": {op: put(set("SUBMARINER-GW-X", cidr("0.0.0.0/0"))), refused: true},
		"set in use":              {op: del(get(dataplane.KindSet, "SUBMARINER-GW-REMOTE")), refused: true},
		"set grows": {
			op: put(set("SUBMARINER-GW-REMOTE", cidr("10.1.0.0/16"), cidr("10.3.0.0/16"))),
		},
		"chain, long name": {
			op:      put(dataplane.Chain{Table: "nat", Name: "SUBMARINER-GW-" + long}),
			refused: true,
		},
		"chain without its set": {
			op: put(dataplane.Chain{
				Table: "nat",
				Name:  "SUBMARINER-GW-X",
				Sets:  []string{"NO"},
				Rules: []string{"-m set --match-set NO src"},
			}),
			refused: true,
		},
		"chain hooked elsewhere": {
			op: put(dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-NOHOOK", Hook: "OUTPUT"}),
		},
		"chain goes":                 {op: del(get(dataplane.KindChain, "mangle SUBMARINER-GW-FORWARD"))},
		"wireguard goes":             {op: del(wgDevice())},
		"wireguard with another key": {op: alter(func(w *dataplane.WireGuard) { w.Private = theirKey })},
		"wireguard of another port":  {op: alter(func(w *dataplane.WireGuard) { w.Port += 10 })},
		"wireguard with another MTU": {op: alter(func(w *dataplane.WireGuard) { w.MTU = 1400 })},
		"wireguard, other settings":  {op: alter(func(w *dataplane.WireGuard) { w.Conf.RPFilter = 1 })},
		"wireguard without a key": {
			op:      alter(func(w *dataplane.WireGuard) { w.Private = dataplane.Secret{} }),
			refused: true,
		},
		"peer goes": {op: del(wgPeer(1, ""))},
		"peer moves": {
			op: turn(func(p *dataplane.WireGuardPeer) { p.Endpoint = wgPeer(2, "172.18.0.9:1").Endpoint }),
		},
		"peer with another secret": {
			op: turn(func(p *dataplane.WireGuardPeer) { p.Preshared = dataplane.Secret{7} }),
		},
		"peer without a secret": {
			op:      turn(func(p *dataplane.WireGuardPeer) { p.Preshared = dataplane.Secret{} }),
			refused: true,
		},
		"peer without keepalive": {op: turn(func(p *dataplane.WireGuardPeer) { p.Keepalive = 0 })},
		"peer loses networks":    {op: turn(func(p *dataplane.WireGuardPeer) { p.Allowed = p.Allowed[:1] })},
		"peer takes a network": {
			op: turn(func(p *dataplane.WireGuardPeer) { p.Allowed = wgPeer(2, "", "10.2.0.0/16").Allowed }),
		},
		"peer, no device": {
			op:      turn(func(p *dataplane.WireGuardPeer) { p.Dev = dataplane.IPsecDevice }),
			refused: true,
		},
		"what is not there goes quietly": {op: del(dataplane.Rule{Priority: 105, Table: dataplane.CableTable})},
	} {
		t.Run(name, func(t *testing.T) {
			ns, h := node(t, dataplane.GatewayOwner)
			settle(t, ns, h, base)
			var fake dataplanetest.Fake
			_, err := dataplane.Sync(context.Background(), &fake, base)
			require.NoError(t, err)

			ns.Do(func() { err = h.Apply(context.Background(), c.op) })
			require.Equal(t, c.refused, err != nil, "the kernel says: %v", err)
			err = fake.Apply(context.Background(), c.op)
			require.Equal(t, c.refused, err != nil, "the fake says: %v", err)
			got, err := fake.Observe(context.Background())
			require.NoError(t, err)
			if !c.refused { // a refused object that exists in part is repaired by the next Sync
				require.Equal(t, fingerprints(look(t, ns, h)), fingerprints(got))
			}
		})
	}
}
