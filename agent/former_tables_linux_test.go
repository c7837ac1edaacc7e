package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	"subctl/agent/roles"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// former returns a State as versions before dataplane.FirstTable had it.
func former(t testing.TB, s dataplane.State) dataplane.State {
	t.Helper()
	out := dataplane.State{}
	for _, o := range s.Sorted() {
		switch r := o.(type) {
		case dataplane.Route:
			r.Table %= dataplane.FirstTable
			o = r
		case dataplane.Detour:
			r.Table %= dataplane.FirstTable
			o = r
		case dataplane.Blackhole:
			r.Table %= dataplane.FirstTable
			o = r
		case dataplane.Throw:
			r.Table %= dataplane.FirstTable
			o = r
		case dataplane.Rule:
			o = dataplane.Rule{Priority: r.Priority, Table: r.Table % dataplane.FirstTable}
		case dataplane.MarkRule:
			r.Table %= dataplane.FirstTable
			o = r
		case dataplane.Arrival:
			if r.Priority == dataplane.FormerPriority {
				continue // of an upgrade
			}
			o = dataplane.Arrival{Priority: r.Priority, Dev: r.Dev, Table: r.Table % dataplane.FirstTable}
		}
		require.NoError(t, out.Add(o))
	}
	return out
}

var inTables = regexp.MustCompile(`(lookup|table) (1[0-9][0-9]|2[0-2][0-9])\b`)

// The agents of a version before had the tables 100, 150 and so on. Nodes are taken over while
// packets cross them, and none is lost, whichever agent of a node is replaced first. Nothing is
// left in the former tables, and the routes and rules of other programs with these numbers stay.
// Uninstalling finds what either version has left.
func TestUpgradeFromFormerTables(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	const foreign = "ip route add 198.51.100.0/24 dev eth0 table 100 proto 99; ip route add 198.51.100.0/24 dev eth0 " +
		"table 150 proto 99; ip rule add pref 100 from 192.0.2.9 lookup 100; ip rule add pref 101 iif vxlan-tunnel " +
		"from 192.0.2.9 lookup 150"
	before := map[*nstest.NS]string{}
	for _, s := range []*side{east, west} {
		for _, ns := range s.nodes {
			ns.Run(foreign)
			before[ns] = holdings(ns)
		}
	}
	back := func() {
		for _, s := range []*side{east, west} {
			s.convert = func(state dataplane.State) dataplane.State { return former(t, state) }
		}
		east.sync(t, west)
		west.sync(t, east)
		require.Zero(t, east.sync(t, west)+west.sync(t, east))
		for _, s := range []*side{east, west} {
			s.convert = nil
		}
	}
	roles := roles.OfNodes()
	byName := func(name string) role.Role {
		return roles[slices.IndexFunc(roles, func(r role.Role) bool { return r.Name == name })]
	}
	for _, order := range [][]string{{"gateway", "route"}, {"route", "gateway"}} {
		t.Run(strings.Join(order, " first, then "), func(t *testing.T) {
			back()
			require.Regexp(t, inTables, east.nodes["worker"].Run("ip rule | grep 'proto 171'"),
				"as in the version before")
			stop := filepath.Join(t.TempDir(), "stop")
			var logs []string
			ping := func(from *side, fromPod string, to *side, toPod string) {
				log := filepath.Join(t.TempDir(), "ping")
				logs = append(logs, log)
				from.pods[fromPod].Start(fmt.Sprintf("ping -i 0.002 %s >%s & until [ -e %s ]; do sleep 0.05; done; "+
					"kill -INT $!; wait",
					to.podIP(toPod), log, stop))
			}
			ping(east, "worker", west, "worker")
			ping(west, "worker", east, "worker")
			ping(west, "gw", east, "gw2")
			ping(east, "gw", west, "worker")
			for _, role := range order {
				for _, s := range []*side{east, west} {
					others := []*side{west}
					if s == west {
						others = []*side{east}
					}
					for _, node := range s.names {
						s.syncOne(t, node, byName(role), others...)
					}
				}
			}
			for range 2 { // both agents of a node see that the other one has followed
				east.sync(t, west)
				west.sync(t, east)
			}
			require.Zero(t, east.sync(t, west)+west.sync(t, east))
			require.NoError(t, os.WriteFile(stop, nil, 0o600))
			for _, log := range logs {
				summary := func() string { text, _ := os.ReadFile(log); return string(text) }
				require.Eventually(t, func() bool { return strings.Contains(summary(), "packet loss") }, time.Minute,
					10*time.Millisecond)
				require.Contains(t, summary(), " 0% packet loss")
			}
			for _, s := range []*side{east, west} {
				for name, ns := range s.nodes {
					left := ns.Run("ip rule | grep 'proto 17[01]'; for p in 170 171; do ip route show table all " +
						"proto $p; done")
					require.NotRegexp(t, inTables, left, name)
				}
			}
		})
	}
	for version, sync := range map[string]func(){"the version before": back, "this version": func() {
		east.sync(t, west)
		west.sync(t, east)
	}} {
		t.Run("uninstalling "+version, func(t *testing.T) {
			sync()
			east.leave(t)
			west.leave(t)
			for ns, was := range before {
				require.Equal(t, was, holdings(ns))
			}
		})
	}
}
