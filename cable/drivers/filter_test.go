package drivers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// A device that a peer can send on is closed: whatever comes in by it and is not asked
// for, in FORWARD and in INPUT, is dropped. That goes for devices too that only carry
// another cable, such as WireGuard under VXLAN.
func TestDevicesAreClosed(t *testing.T) {
	for _, d := range all() {
		t.Run(d.Name(), func(t *testing.T) {
			s := whole(t, local(1), func(int) cable.Driver { return d }, peers(t, 2))
			rules := table(t, s)
			for _, o := range s.Sorted() {
				if o.Key().Kind != dataplane.KindLink {
					continue
				}
				dev := o.Key().Name
				require.True(t, closed(rules, "filter-input", dev), "%s is open in INPUT:\n%v", dev, rules)
				require.True(t, closed(rules, "filter-forward", dev), "%s is open in FORWARD:\n%v", dev, rules)
			}
		})
	}
}

// table is the gateway's table with the filter.
func table(t *testing.T, s dataplane.State) dataplane.Ruleset {
	t.Helper()
	r, ok := s[dataplane.RulesetKey("ip", dataplane.GatewayOwner.Antispoof)].(dataplane.Ruleset)
	require.True(t, ok, "no table")
	return r
}

// closed reports whether a chain drops what arrives on a device, or leads it to one that ends so.
func closed(r dataplane.Ruleset, chain, dev string) bool {
	const drop = "counter drop"
	for _, rule := range r.Chain(chain).Rules {
		rest, on := strings.CutPrefix(rule.Text, fmt.Sprintf("iifname %q ", dev))
		to, jumps := strings.CutPrefix(rest, "jump ")
		switch {
		case on && rest == drop:
			return true
		case on && jumps:
			rules := r.Chain(to).Rules
			return rules[len(rules)-1].Text == drop
		}
	}
	return false
}

// A cluster's packets come in by the device of its cable and by no other: whoever can
// send on a plain cable cannot pass for a cluster behind an encrypted one. This is so
// for a few networks, which are matched one by one, and for many.
func TestSourcesAreBoundToDevices(t *testing.T) {
	nstest.Root(t)
	plain := drivers.Find(cable.VXLAN)
	encrypted := drivers.Find(cable.WireGuard)
	for _, clusters := range [][]byte{{2, 3}, {2, 3, 4, 5, 6, 7, 8, 9}} { // the even ones' cables are encrypted
		t.Run(fmt.Sprint(len(clusters)), func(t *testing.T) {
			s := whole(t, local(1), func(i int) cable.Driver { return []cable.Driver{encrypted, plain}[i%2] },
				peers(t, clusters...))
			gw := nstest.New(t, "gw")
			pod := nstest.New(t, "pod")
			nstest.Join(nstest.End{NS: gw, Dev: "pod", Addr: "10.101.0.1/16"},
				nstest.End{NS: pod, Dev: "eth0", Addr: "10.101.0.2/16"})
			pod.Run("ip route add default via 10.101.0.1")
			gw.Run("sysctl -qw net.ipv4.ip_forward=1; iptables -N PASSED; iptables -A FORWARD -j PASSED")
			rules := table(t, s) // without those against forged packets
			rules.Chains = slices.DeleteFunc(rules.Chains, func(c dataplane.RuleChain) bool {
				return c.Hook != "" && c.Priority != -1 && c.Priority != -2
			})
			filter, err := dataplane.Of(rules)
			require.NoError(t, err)
			for _, o := range s.Sorted() {
				if o.Key().Kind == dataplane.KindChain {
					require.NoError(t, filter.Add(o))
				}
			}
			gw.Do(func() {
				host, err := kernel.New(dataplane.GatewayOwner)
				require.NoError(t, err)
				defer host.Close()
				_, err = dataplane.Sync(context.Background(), host, filter)
				require.NoError(t, err)
			})
			senders := map[string]*nstest.NS{
				dataplane.VXLANDevice:     nstest.New(t, "plain"),
				dataplane.WireGuardDevice: nstest.New(t, "encrypted"),
			}
			for dev, ns := range senders { // what would come out of the cables
				nstest.Join(nstest.End{NS: gw, Dev: dev, Addr: "192.0.2.1/24"},
					nstest.End{NS: ns, Dev: "eth0", Addr: "192.0.2.2/24"})
				ns.Run("ip route add default via 192.0.2.1")
				gw.Run("sysctl -qw net.ipv4.conf." + dev + ".rp_filter=0")
			}
			for _, c := range clusters {
				own := dataplane.WireGuardDevice
				other := dataplane.VXLANDevice
				if c%2 == 1 {
					own, other = other, own
				}
				gw.Run("iptables -F PASSED")
				for _, dev := range []string{other, own} {
					gw.Run(fmt.Sprintf("iptables -A PASSED -i %s -s 10.%d.0.9", dev, 100+c))
					senders[dev].Run(
						fmt.Sprintf(
							"ip addr add 10.%d.0.9/32 dev lo; ping -c1 -W0.1 -I 10.%[1]d.0.9 10.101.0.2 >/dev/null; ip addr del 10.%[1]d.0.9/32 dev lo",
							100+c),
					)
				}
				passed := func(dev string) string {
					return strings.Fields(gw.Run("iptables -nvxL PASSED | grep -w " + dev))[0]
				}
				require.Eventually(t, func() bool { return passed(own) == "1" }, 10*time.Second, 20*time.Millisecond,
					"cluster %d comes in by %s", c, own)
				require.Equal(t, "0", passed(other), "packets of cluster %d that came in by %s and passed", c, other)
			}
		})
	}
}
