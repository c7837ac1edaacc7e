//go:build linux

package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/measure"
	"subctl/internal/nstest"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// many returns a configuration with n rules: half of them choose uplinks, the others are of the
// firewall. The last one for uplinks, and the forwarding, concern all connections.
func many(n int) rest.Config {
	c := balance("1", "1", "2", "1")
	c.Rules = nil
	for i := range n / 2 {
		c.Rules = append(
			c.Rules,
			rest.Rule{
				Name:     fmt.Sprint("rule-", i),
				Policy:   "both",
				DestIP:   fmt.Sprintf("10.%d.%d.0/24", i/250, i%250),
				DestPort: "443",
				Proto:    "tcp",
			},
		)
	}
	c.Rules[len(c.Rules)-1] = rest.Rule{Name: "all", Policy: "both", Proto: "all"}
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}},
		{Name: "wan", Network: []string{"net1", "net2"}, Input: "REJECT"},
	}
	c.Forwardings = []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}}
	for i := range n - n/2 {
		c.Firewall = append(
			c.Firewall,
			rest.FirewallRule{
				Name:     fmt.Sprint("rule-", i),
				Src:      "lan",
				Dest:     "wan",
				DestIP:   fmt.Sprintf("10.%d.%d.0/24", i/250, i%250),
				DestPort: "22",
				Proto:    "tcp",
				Target:   "REJECT",
			},
		)
	}
	return c
}

// BenchmarkRules measures how long it takes until the kernel holds 1,000 rules, and one more: the
// plan, the transaction, and reading the kernel before and after.
func BenchmarkRules(b *testing.B) {
	ns := nstest.New(b, "cnf")
	var w cnf.World
	for i, addr := range []string{"192.168.1.254/24", "198.51.100.2/24", "203.0.113.2/24"} {
		ns.Run(
			fmt.Sprintf(
				"ip link add net%d type veth peer name p%[1]d && ip link set p%[1]d up && ip addr add %[2]s dev net%[1]d && ip link set net%[1]d up",
				i, addr),
		)
	}
	a := New(Options{Attachments: attachments(), Uplinks: uplinks(), Kernel: Kernel{}})
	var target dataplane.Target
	ns.Do(func() {
		n, err := kernel.ReadNetwork()
		require.NoError(b, err)
		w = a.look(n)
		host, err := kernel.New(dataplane.CNFOwner)
		require.NoError(b, err)
		target = host
	})
	type times struct{ cpu, passed measure.Values } // in milliseconds
	hold := func(c rest.Config, to *times) {
		ns.Do(func() {
			var report cnf.Report
			var err error
			start := time.Now()
			cpu := measure.CPU(b, func() {
				var state dataplane.State
				state, report = cnf.Plan(c, w)
				_, err = dataplane.Sync(context.Background(), target, state)
			})
			to.cpu, to.passed = append(to.cpu,
				1000*cpu), append(to.passed, float64(time.Since(start).Microseconds())/1000)
			require.NoError(b, err)
			require.Empty(b, report)
		})
	}
	const n = 1000
	for b.Loop() {
		var none, all, one times
		for range measure.Times(10) {
			hold(rest.Config{}, &none)
			ns.Run("nft delete table inet subctl-cnf")
			c := many(n)
			hold(c, &all)
			c.Firewall = append(
				c.Firewall,
				rest.FirewallRule{
					Name:     "one-more",
					Src:      "lan",
					Dest:     "wan",
					DestPort: "23",
					Proto:    "tcp",
					Target:   "REJECT",
				},
			)
			hold(c, &one)
		}
		measure.Record(b, measure.AtMost("CNF: 1,000 rules, from none, CPU time", all.cpu, 500, "ms"),
			measure.Info("CNF: 1,000 rules, from none", all.passed, "ms"),
			measure.AtMost("CNF: one more than 1,000 rules, CPU time", one.cpu, 50, "ms"),
			measure.Info("CNF: one more than 1,000 rules", one.passed, "ms"))
	}
}

// BenchmarkForwarding compares the throughput through a CNF with that through a namespace that only
// forwards, by CPU time, in turns, and with that through the least that a person could set up by
// hand to choose an uplink for each connection. Each measurement is of a connection of its own.
func BenchmarkForwarding(b *testing.B) {
	const name = "CNF with %d rules"
	plain := newPlain(b)
	byHand := newByHand(b)
	for _, row := range []struct {
		rules int
		least float64
	}{{10, 90}, {1000, 80}} {
		b.Run(fmt.Sprint(row.rules), func(b *testing.B) {
			s := newSite(b)
			s.apply(many(row.rules))
			measure.OneCPU(b, s.lan, s.cnf, s.isp1, s.far)
			through := func(s *site) measure.Path {
				return measure.Path{
					From: nstest.Host{NS: s.lan, IP: "192.168.1.2"},
					To:   nstest.Host{NS: s.far, IP: "192.0.2.1"},
				}
			}
			for b.Loop() {
				c := measure.Compare(measure.Times(60), func() float64 { return through(s).Throughput(b) },
					func() float64 { return through(plain).Throughput(b) })
				measure.Record(
					b,
					measure.AtLeast(fmt.Sprintf(name+": throughput, of plain forwarding", row.rules), c.Percent,
						row.least, "%"),
				)
				c = measure.Compare(measure.Times(60), func() float64 { return through(s).Throughput(b) },
					func() float64 { return through(byHand).Throughput(b) })
				measure.Record(
					b,
					measure.AtLeast(
						fmt.Sprintf(name+": throughput, of connection tracking, a mark and one routing rule by hand",
							row.rules),
						c.Percent,
						97,
						"%",
					),
				)
			}
		})
	}
}

// newByHand returns a site whose CNF is a router that tracks connections, lets established ones
// pass, and sends marked ones through an uplink.
func newByHand(b testing.TB) *site {
	s := newPlain(b)
	s.cnf.Run(
		"ip rule add fwmark 0x200 lookup 42 && ip route add default via 198.51.100.1 table 42 && ip route add 192.168.1.0/24 dev net0 table 42")
	s.cnf.Run(`nft -f - <<'END'
table ip by-hand {
	chain prerouting {
		type filter hook prerouting priority mangle;
		ct mark 0 ct mark set 0x200
		meta mark set ct mark
	}
	chain forward {
		type filter hook forward priority filter;
		ct state established,related accept
	}
}
END`)
	return s
}

// newPlain returns a site whose CNF is a router without any rule.
func newPlain(b testing.TB) *site {
	s := newNetworks(b)
	s.cnf.Run("sysctl -qw net.ipv4.ip_forward=1 && ip route add 192.0.2.0/24 via 198.51.100.1")
	measure.OneCPU(b, s.lan, s.cnf, s.isp1, s.far)
	return s
}
