package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// The leak matrix of the kernels: a hub with two spokes, and with a pair, over each driver. Nothing
// of a cluster is in the kernels, plans, reports and metrics of clusters with which it has no
// clusterset in common, and no packet passes, whatever routes there are.
// leaks_packets_linux_test.go has the packets. broker/exchange/leaks_test.go is the leak matrix of
// the API.

// leakWorld are the members, by ID.
type leakWorld struct {
	t       *testing.T
	hub     *member
	members []*member
	pairs   map[string][]*member // which clusters a cluster is connected to
	// packets that attackers' gateways have sent into their cables, all of which the hub has
	// received
	arrived int
	passed  []int // what the cable itself has let through in the last attack: see past
}

// newLeakWorld connects the hub with two spokes and a pair; with -short, with the spokes only.
func newLeakWorld(t *testing.T, driver string) *leakWorld {
	t.Helper()
	nstest.WireGuard(t) // every gateway announces its key
	d := drivers.Find(driver)
	fabric := newFabric(t)
	w := &leakWorld{t: t}
	ids := []string{"the-hub", "spoke-east", "spoke-west", "pair-one", "pair-two"}
	if testing.Short() {
		ids = ids[:3]
	}
	for i, id := range ids {
		m := newMember(t, fabric, i+1, id, d)
		m.admitInvalid()
		m.publish(t)
		w.members = append(w.members, m)
	}
	w.hub = w.members[0]
	w.pairs = map[string][]*member{w.hub.id: w.members[1:], "spoke-east": {w.hub}, "spoke-west": {w.hub}}
	if !testing.Short() {
		one := w.members[3]
		two := w.members[4]
		w.pairs[one.id], w.pairs[two.id] = []*member{w.hub, two}, []*member{w.hub, one}
	}
	for _, m := range w.members {
		m.sync(t, w.pairs[m.id]...)
	}
	for _, m := range w.members {
		for _, other := range w.pairs[m.id] {
			nstest.Until(t, m.host("worker"), other.host("worker"))
		}
	}
	return w
}

// strangers returns the members with which a member has no clusterset in common.
func (w *leakWorld) strangers(m *member) []*member {
	return slices.DeleteFunc(slices.Clone(w.members),
		func(o *member) bool { return o == m || slices.Contains(w.pairs[m.id], o) })
}

// marks returns what only the kernels of clusters that know m contain: its networks, the addresses
// of its nodes on all devices, its keys and its ID.
func (m *member) marks() []string {
	out := []string{m.id, fmt.Sprintf("10.11%d.", m.n), fmt.Sprintf("10.10%d.", m.n), fmt.Sprintf("172.18.%d.", m.n)}
	for net := dataplane.IntraVTEPNet; net <= dataplane.OtherVNINet; net++ {
		out = append(out, fmt.Sprintf("%d.18.%d.", net, m.n))
		for _, node := range nodeNames {
			out = append(out, vtepMAC(byte(net), m.node(node)))
		}
	}
	for _, o := range m.announced {
		switch o := o.(type) {
		case *submarinerv1.Endpoint:
			for _, value := range o.Spec.BackendConfig {
				if len(value) == 44 { // a key of 32 bytes, in base64
					out = append(out, value)
				}
			}
		case *submarinerv1.Cluster:
			out = append(out, o.Spec.PublicKey)
		}
	}
	return out
}

// contents returns what the kernel of a node contains, and the programs of its cables.
func contents(t testing.TB, ns *nstest.NS) string {
	t.Helper()
	out := ns.Run(
		"ip -d link; ip -4 addr; ip -4 route show table all; ip rule; ip nexthop; ip neigh; ip neigh show proxy; bridge fdb; iptables-save; nft list ruleset; ipset list 2>/dev/null; ip xfrm state 2>/dev/null; ip xfrm policy 2>/dev/null; true")
	ns.Do(func() {
		c, err := wgctrl.New()
		require.NoError(t, err)
		defer c.Close()
		devices, err := c.Devices()
		require.NoError(t, err)
		for _, d := range devices {
			for _, p := range d.Peers {
				out += fmt.Sprintln(p.PublicKey, p.Endpoint, p.AllowedIPs)
			}
		}
	})
	return out
}

// search returns what a member has of others.
func (w *leakWorld) search(m *member, others ...*member) (attempts int, leaks []string) {
	places := map[string]string{"its plans, reports and metrics": m.told.String()}
	for name, ns := range m.nodes {
		places["node "+name] = contents(w.t, ns)
		for _, f := range flows(w.t, ns) {
			places["node "+name] += fmt.Sprintln(f)
		}
	}
	if h := m.hosts[dataplane.GatewayOwner.Name]; h != nil {
		m.nodes["gw"].Do(func() {
			states, err := h.CableStates()
			require.NoError(w.t, err)
			places["the state of its cables"] = fmt.Sprint(states)
		})
	}
	for _, other := range others {
		for _, mark := range other.marks() {
			for place, text := range places {
				attempts++
				if strings.Contains(text, mark) {
					leaks = append(leaks, fmt.Sprintf("%s has %s of %s: %s", m.id, mark, other.id, place))
				}
			}
		}
	}
	return attempts, leaks
}

// Clusters without a common clusterset have nothing of each other and do not reach each other, over
// any driver.
func TestLeakMatrix(t *testing.T) {
	for _, d := range drivers.All() {
		t.Run(d.Name(), func(t *testing.T) {
			w := newLeakWorld(t, d.Name())
			attempts, leaks := w.searchAll()
			require.Empty(t, leaks)
			_, found := w.search(w.hub, w.members[1:]...)
			for _, m := range w.members[1:] {
				for _, mark := range []string{
					m.id,
					fmt.Sprintf("10.11%d.", m.n),
					fmt.Sprintf("10.10%d.", m.n),
					m.link()[:len(m.link())-2],
					m.node("gw")[:9],
				} {
					require.Contains(t, strings.Join(found, "\n"), "the-hub has "+mark,
						"the search does not see what is there")
				}
			}

			w.control()
			for _, from := range w.members[1:] {
				sent, seen := w.attack(from)
				attempts = attempts + sent
				leaks = append(leaks, seen...)
			}
			require.Empty(t, leaks)
			measure.Record(
				t,
				measure.Info("leak matrix, "+d.Name()+": attempts", measure.Values{float64(attempts)}, ""),
				measure.Info("leak matrix, "+d.Name()+": attempts that the hub received through a cable, at least",
					measure.Values{float64(w.arrived)}, ""),
				measure.AtMost("leak matrix, "+d.Name()+": leaks", measure.Values{float64(len(leaks))}, 0, ""),
			)
			w.breakRules()
		})
	}
}

// searchAll searches all members for all others that they must not know.
func (w *leakWorld) searchAll() (attempts int, leaks []string) {
	for _, m := range w.members {
		n, found := w.search(m, w.strangers(m)...)
		attempts = attempts + n
		leaks = append(leaks, found...)
	}
	return attempts, leaks
}

// withoutRules removes our rules from a gateway.
var withoutRules = "nft delete table ip " + dataplane.GatewayOwner.Antispoof +
	"; for c in $(iptables -S | sed -n 's/^-N \\(SUBMARINER-GW-[^ ]*\\)$/\\1/p'); do iptables -F $c; done"

// breakRules breaks one thing after another that keeps clusters apart. The matrix finds each. With
// -short, and with all drivers but the first, it breaks only the gateway of the hub: workers have
// the same rules with all drivers.
func (w *leakWorld) breakRules() {
	east := w.members[1]
	west := w.members[2]
	for what, command := range map[string]struct {
		of   *member
		node string
		run  string
	}{
		"the gateway of the hub": {w.hub, "gw", withoutRules},
		"a worker of the hub": {
			w.hub,
			"worker",
			"nft flush chain ip " + dataplane.RouteOwner.Antispoof + " forward",
		},
		"a worker of a spoke": {
			west,
			"worker",
			"nft delete table ip " + dataplane.RouteOwner.Antispoof + "; iptables -F SUBMARINER-INPUT",
		},
	} {
		if command.node != "gw" && (testing.Short() || w.hub.driver.Name() != drivers.All()[0].Name()) {
			continue
		}
		w.t.Run("without the rules of "+what, func(t *testing.T) {
			command.of.nodes[command.node].Run(command.run)
			_, seen := w.attack(east)
			require.NotEmpty(t, seen)
			t.Logf("found: %.500s", strings.Join(seen, "\n"))
			command.of.sync(t, w.pairs[command.of.id]...)
			_, seen = w.attack(east)
			require.Empty(t, seen, "the agents have repaired it")
		})
	}
	switch w.hub.driver.Name() {
	case cable.IPsec:
		w.breakSelectors(east)
	case cable.WireGuard:
		w.breakAllowedIPs(east)
	}
	w.t.Run("with an object too many", func(t *testing.T) {
		west.sync(t, w.hub, east)
		_, leaks := w.search(west, east)
		require.Greater(t, len(leaks), 10)
	})
}
