package dataplane_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"

	"github.com/stretchr/testify/require"
)

func state(t *testing.T, objs ...dataplane.Object) dataplane.State {
	t.Helper()
	s, err := dataplane.Of(objs...)
	require.NoError(t, err)
	return s
}

func steps(ops []dataplane.Op) (out []string) {
	for _, op := range ops {
		out = append(out, op.String())
	}
	return out
}

var (
	device = dataplane.VXLAN{
		Name:  "vxlan-tunnel",
		MAC:   "0a:58:00:00:00:02",
		VNI:   1000,
		Local: netip.MustParseAddr("172.18.0.2"),
		Port:  4500,
		MTU:   1450,
	}
	vtep   = dataplane.Addr{Dev: device.Name, Prefix: netip.MustParsePrefix("241.18.0.2/8")}
	hop    = dataplane.Nexthop{ID: 1, Via: netip.MustParseAddr("241.18.0.3"), Dev: device.Name}
	group  = dataplane.Group{ID: 9, Members: []dataplane.Member{{ID: 1, Weight: 1}}}
	route  = dataplane.Route{Table: 100, Dst: netip.MustParsePrefix("10.1.0.0/16"), Group: 9}
	rule   = dataplane.Rule{Priority: 100, Table: 100}
	remote = dataplane.Set{Name: "SUBMARINER-GW-R", Members: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	chain  = dataplane.Chain{
		Table: "mangle",
		Name:  "SUBMARINER-GW-F",
		Hook:  "FORWARD",
		Rules: []string{"-m set --match-set SUBMARINER-GW-R src -j ACCEPT"},
		Sets:  []string{remote.Name},
	}
)

func all(t *testing.T) dataplane.State {
	return state(t, route, rule, group, hop, vtep, device, chain, remote)
}

// Objects are put after the objects that they depend on, and removed before them.
func TestDiffOrder(t *testing.T) {
	want := all(t)
	puts := dataplane.Diff(nil, want)
	var kinds []dataplane.Kind
	for _, op := range puts {
		kinds = append(kinds, op.New.Key().Kind)
	}
	require.True(t, slices.IsSorted(kinds), kinds)
	require.Len(t, puts, len(want))

	dels := dataplane.Diff(want, nil)
	slices.Reverse(dels)
	require.Len(t, dels, len(puts))
	for i := range puts {
		require.Equal(t, "- "+puts[i].New.String(), dels[i].String())
	}
}

func TestDiffReplace(t *testing.T) {
	moved := hop
	moved.Via = netip.MustParseAddr("241.18.0.4")
	want := all(t)
	want[moved.Key()] = moved
	require.Equal(t, []dataplane.Op{{Old: hop, New: moved}}, dataplane.Diff(all(t), want))
	require.Empty(t, dataplane.Diff(want, want))
}

// through returns a group of next hops of equal weight.
func through(id uint32, hops ...uint32) (g dataplane.Group) {
	g.ID = id
	for _, h := range hops {
		g.Members = append(g.Members, dataplane.Member{ID: h, Weight: 1})
	}
	return g
}

// to returns a route through a group.
func to(dst string, group uint32) dataplane.Route {
	return dataplane.Route{Table: 100, Dst: netip.MustParsePrefix(dst), Group: group}
}

// When a group, or a next hop, passes to another cluster, no route leads to a gateway of the wrong
// cluster meanwhile.
func TestHostileGroupPassesOn(t *testing.T) {
	at := func(id uint32, gateway string) dataplane.Nexthop {
		return dataplane.Nexthop{ID: id, Via: netip.MustParseAddr(gateway), Dev: device.Name}
	}
	const victim, attacker = "10.1.0.0/16", "10.2.0.0/16"
	gateway := map[string]string{victim: "241.18.0.3", attacker: "241.18.0.4"}
	alone := state(t, device, vtep, rule, at(1, gateway[victim]), through(9, 1), to(victim, 9))
	for name, both := range map[string]dataplane.State{
		"a group": state(t, device, vtep, rule, at(1, gateway[victim]), at(2, gateway[attacker]), through(9, 2),
			through(10, 1), to(victim, 10), to(attacker, 9)),
		"a next hop": state(t, device, vtep, rule, at(1, gateway[attacker]), at(2, gateway[victim]), through(9, 2),
			through(10, 1), to(victim, 9), to(attacker, 10)),
	} {
		for change, plans := range map[string][2]dataplane.State{"comes": {alone, both}, "goes": {both, alone}} {
			t.Run(name+" when the attacker "+change, func(t *testing.T) {
				var f dataplanetest.Fake
				for _, op := range dataplane.Diff(nil, plans[0]) {
					require.NoError(t, f.Apply(t.Context(), op))
				}
				ahead := dataplane.Ahead(dataplane.Held(plans[0], nil), plans[1])
				for _, op := range append(ahead, dataplane.Diff(plans[0], plans[1])...) {
					require.NoError(t, f.Apply(t.Context(), op))
					now, err := f.Observe(t.Context())
					require.NoError(t, err)
					for _, o := range now {
						r, ok := o.(dataplane.Route)
						if !ok {
							continue
						}
						for _, m := range now[dataplane.Group{ID: r.Group}.Key()].(dataplane.Group).Members {
							via := now[dataplane.Nexthop{ID: m.ID}.Key()].(dataplane.Nexthop).Via
							require.Equal(t, gateway[r.Dst.String()], via.String(), "%v after %v", r, op)
						}
					}
				}
				now, err := f.Observe(t.Context())
				require.NoError(t, err)
				require.Empty(t, dataplane.Diff(now, plans[1]), "in one pass")
			})
		}
	}
}

// What a daemon left is removed, but not before its successor has been started.
func TestDiffRemains(t *testing.T) {
	daemon := dataplane.IKEDaemon{Port: 4500}
	left := dataplane.IKERemains{}
	require.Equal(t, []dataplane.Op{{New: daemon}}, dataplane.Diff(state(t, left), state(t, daemon)))
	require.Equal(t, []dataplane.Op{{Old: left}}, dataplane.Diff(state(t, left, daemon), state(t, daemon)))
	require.Equal(t, []dataplane.Op{{Old: left}}, dataplane.Diff(state(t, left), nil))
	silent := dataplane.IKEDaemon{}
	require.Equal(t, []dataplane.Op{{Old: silent, New: daemon}},
		dataplane.Diff(state(t, left, silent), state(t, daemon)))
}

// The text of a step shows what it does with a running daemon.
func TestDaemonSteps(t *testing.T) {
	daemon := dataplane.IKEDaemon{Port: 4500}
	found := daemon
	debug := daemon
	moved := daemon
	found.Unattended = true
	debug.Debug = true
	moved.Port = 4510
	for _, c := range []struct {
		old   dataplane.Object
		added string
	}{
		{nil, ""},
		{found, ": adopts the one that runs"},
		{dataplane.IKEDaemon{}, ", in place of one that does not answer"},
		{debug, ""},
		{moved, ""},
	} {
		require.Equal(t, "+ "+daemon.String()+c.added, dataplane.Op{Old: c.old, New: daemon}.String())
	}
}

// When a device has to be recreated, Diff puts everything that depends on it again; when it can
// be changed in place, Diff does not.
func TestDiffDevice(t *testing.T) {
	anew := device
	altered := device
	anew.VNI++
	altered.MTU++
	want := all(t)
	want[device.Key()] = anew
	require.Equal(
		t,
		[]string{
			"+ " + anew.String(),
			"+ " + vtep.String(),
			"+ " + hop.String(),
			"+ " + group.String(),
			"+ " + route.String(),
		},
		steps(dataplane.Diff(all(t), want)),
	)
	want[device.Key()] = altered
	require.Equal(t, []string{"+ " + altered.String()}, steps(dataplane.Diff(all(t), want)))

	// An unwanted object that the kernel removes by itself need not be removed.
	require.Equal(t, []string{"+ " + anew.String()}, steps(dataplane.Diff(state(t, device, vtep, hop), state(t, anew))))
}

func TestAddRefusesTwoPlans(t *testing.T) {
	s := all(t)
	require.NoError(t, s.Add(route), "the same plan twice is one")
	other := route
	other.Group++
	err := s.Add(other)
	require.ErrorContains(t, err, route.String())
	require.ErrorContains(t, err, other.String())
	require.Error(t, state(t, other).Merge(s))
}

func TestSync(t *testing.T) {
	var f dataplanetest.Fake
	done, err := dataplane.Sync(context.Background(), &f, all(t))
	require.NoError(t, err)
	require.Equal(t, steps(dataplane.Diff(nil, all(t))), steps(done))
	done, err = dataplane.Sync(context.Background(), &f, all(t))
	require.NoError(t, err)
	require.Empty(t, done)
}

// A step that fails is tried again, and so are the steps that depend on it.
func TestSyncFailingStep(t *testing.T) {
	for n := 1; n <= len(all(t)); n++ {
		f := dataplanetest.Fake{FailAt: n}
		done, err := dataplane.Sync(context.Background(), &f, all(t))
		require.NoError(t, err, n)
		require.Len(t, done, len(all(t)), n)
		got, err := f.Observe(context.Background())
		require.NoError(t, err)
		require.Equal(t, all(t), got)
	}
}

// A step that always fails is named in the error; the other steps are taken all the same.
func TestSyncDrift(t *testing.T) {
	lost := hop
	lost.Via = netip.MustParseAddr("192.0.2.1")
	want := all(t)
	want[hop.Key()] = lost
	var f dataplanetest.Fake
	_, err := dataplane.Sync(context.Background(), &f, want)
	require.ErrorIs(t, err, dataplane.ErrDrift)
	require.ErrorContains(t, err, "192.0.2.1")
	got, err := f.Observe(context.Background())
	require.NoError(t, err)
	require.Contains(t, got, rule.Key(), "what could be done is done")
	require.NotContains(t, got, route.Key())
}

func TestSyncCannotLook(t *testing.T) {
	why := errors.New("no eyes")
	f := dataplanetest.Fake{ObserveErr: why}
	_, err := dataplane.Sync(context.Background(), &f, all(t))
	require.ErrorIs(t, err, why)
	require.Zero(t, f.Applied(), "nothing is done blindly")
}

// cut is a target whose agent is stopped after some steps.
type cut struct {
	*dataplanetest.Fake
	left int // may be taken
	stop func()
}

func (c *cut) Apply(ctx context.Context, op dataplane.Op) error {
	if c.left--; c.left == 0 {
		c.stop()
	}
	return c.Fake.Apply(context.WithoutCancel(ctx), op) // a step that has begun
}

// An agent may be stopped at any point; the next Sync completes.
func TestSyncStopped(t *testing.T) {
	for n := 1; n < len(all(t)); n++ {
		ctx, stop := context.WithCancel(context.Background())
		f := &dataplanetest.Fake{}
		_, err := dataplane.Sync(ctx, &cut{f, n, stop}, all(t))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, n, f.Applied(), "no step is taken after that")
		_, err = dataplane.Sync(context.Background(), f, all(t))
		require.NoError(t, err)
		got, err := f.Observe(context.Background())
		require.NoError(t, err)
		require.Equal(t, all(t), got)
	}
}

func TestStateString(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(all(t).String()), "\n")
	require.Equal(t, "ipset create SUBMARINER-GW-R hash:net", lines[0])
	require.Equal(t, "ip rule add pref 100 lookup 100", lines[len(lines)-1])
}
