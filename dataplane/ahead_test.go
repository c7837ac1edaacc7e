package dataplane_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// Before the kernel is read, a group loses the gateway that does not answer, or gets it back.
// Nothing else is changed then.
func TestAhead(t *testing.T) {
	first := dataplane.Nexthop{ID: 1, Via: netip.MustParseAddr("241.18.0.3"), Dev: device.Name}
	second := dataplane.Nexthop{ID: 2, Via: netip.MustParseAddr("241.18.0.4"), Dev: device.Name}
	moved := second
	moved.Via = netip.MustParseAddr("241.18.0.5")
	of := func(id uint32, hops ...dataplane.Nexthop) (g dataplane.Group) {
		g.ID = id
		for _, h := range hops {
			g.Members = append(g.Members, dataplane.Member{ID: h.ID, Weight: 1})
		}
		return g
	}
	resilient := of(9, first)
	resilient.Buckets = 1024
	west := to("10.1.0.0/16", 9)
	north := to("10.2.0.0/16", 9)
	both := of(9, first, second)
	one := of(9, first)
	for name, test := range map[string]struct {
		held, want []dataplane.Object
		turns      bool
	}{
		"a gateway goes": {
			[]dataplane.Object{first, second, both, west},
			[]dataplane.Object{first, second, one, west},
			true,
		},
		"with its next hop": {
			[]dataplane.Object{first, second, both, west},
			[]dataplane.Object{first, one, west},
			true,
		},
		"and another route comes": {
			[]dataplane.Object{first, second, both, west},
			[]dataplane.Object{first, second, one, west, north},
			true,
		},
		"a gateway returns": {
			[]dataplane.Object{first, second, one, west},
			[]dataplane.Object{first, second, both, west},
			true,
		},
		"a gateway is new": {
			[]dataplane.Object{first, one, west},
			[]dataplane.Object{first, second, both, west},
			false,
		},
		"a gateway has another address": {
			[]dataplane.Object{first, second, one, west},
			[]dataplane.Object{first, moved, both, west},
			false,
		},
		"the group is new": {[]dataplane.Object{first}, []dataplane.Object{first, one, west}, false},
		"the group gets another type": {
			[]dataplane.Object{first, second, both, west},
			[]dataplane.Object{first, second, resilient, west},
			false,
		},
		"a route that uses it goes": {
			[]dataplane.Object{first, second, both, west, north},
			[]dataplane.Object{first, second, one, west},
			false,
		},
		"a route that uses it is to change": {
			[]dataplane.Object{first, second, both, west},
			[]dataplane.Object{first, second, one, of(10, second), to("10.1.0.0/16", 10)},
			false,
		},
		"nothing changes": {
			[]dataplane.Object{first, second, both, west},
			[]dataplane.Object{first, second, both, west},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			held := state(t, append(test.held, device, vtep, rule)...)
			want := state(t, append(test.want, device, vtep, rule)...)
			got := dataplane.Ahead(dataplane.Held(held, nil), want)
			if !test.turns {
				require.Empty(t, got)
				return
			}
			g := one.Key()
			require.Equal(t, []dataplane.Op{{Old: held[g], New: want[g]}}, got)
		})
	}
}

// An object that cannot be put or removed keeps only its own groups as they are.
func TestAheadBesideFailure(t *testing.T) {
	at := func(id uint32) dataplane.Nexthop {
		return dataplane.Nexthop{ID: id, Via: netip.AddrFrom4([4]byte{241, 18, 0, byte(id)}), Dev: device.Name}
	}
	const west, north = "10.1.0.0/16", "10.2.0.0/16"
	with := func(objs ...dataplane.Object) dataplane.State {
		return state(t, append(objs, device, vtep, at(3), at(4), through(9, 3, 4), to(west, 9))...)
	}
	for name, test := range map[string]struct {
		before, want dataplane.State
		fails        dataplane.Object
		turns        bool
	}{
		"nothing fails":                       {with(), with(), nil, true},
		"another next hop is refused":         {with(), with(at(5), through(10, 5), to(north, 10)), at(5), true},
		"the next hop of a detour is refused": {with(), with(at(5)), at(5), true},
		"another group stays":                 {with(at(5), through(10, 5)), with(at(5)), through(10, 5), true},
		"a next hop of the group is refused":  {dataplane.State{}, with(), at(4), false},
		"the group is refused": {
			state(t, device, vtep, at(3), at(4), through(9, 4), to(west, 9)),
			with(),
			through(9),
			false,
		},
		"a route stays, and leads to the group": {with(to(north, 9)), with(), to(north, 9), false},
		"a route leads to the group, still": {
			with(through(10, 3), to(north, 9)),
			with(through(10, 3), to(north, 10)),
			to(north, 9),
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &dataplanetest.Fake{}
			_, err := dataplane.Sync(t.Context(), f, test.before)
			require.NoError(t, err)
			target := stubborn{Fake: f}
			if test.fails != nil {
				target.keeps = test.fails.Key()
				f.Refuse = refusing(test.fails.Key(), errors.New("not this one"))
			}
			_, err = dataplane.Sync(t.Context(), target, test.want)
			require.Equal(t, test.fails != nil, err != nil, err)
			next := maps.Clone(test.want)
			next[through(9).Key()] = through(9, 3)
			ops := dataplane.Ahead(dataplane.Held(test.want, err), next)
			if !test.turns {
				require.Empty(t, ops)
				return
			}
			require.Equal(t, []dataplane.Op{{Old: through(9, 3, 4), New: through(9, 3)}}, ops)
		})
	}
}

// What a Sync that was cut off has left is not known, so nothing is done ahead of the next one.
func TestHeldIsUnknown(t *testing.T) {
	f := &dataplanetest.Fake{}
	want := all(t)
	_, err := dataplane.Sync(t.Context(), f, want)
	require.NoError(t, err)
	require.NotNil(t, dataplane.Held(want, err))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = dataplane.Sync(ctx, f, want)
	require.Nil(t, dataplane.Held(want, err))
	f.ObserveErr = errors.New("netlink")
	_, err = dataplane.Sync(t.Context(), f, want)
	require.Nil(t, dataplane.Held(want, err))
}
