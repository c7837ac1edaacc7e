package cable

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

func gatewayNode(i int) Node {
	return Node{Name: fmt.Sprintf("gw%02d", i), IP: netip.AddrFrom4([4]byte{172, 18, 0, byte(i)})}
}

// plannedReturns returns the plan of the return path of a node, in a cluster with gateway nodes 1
// to 3.
func plannedReturns(t *testing.T, self Node, active ...Node) dataplane.State {
	t.Helper()
	s := dataplane.State{}
	n := Intra{Self: self, Gateways: active, Ranked: []Node{gatewayNode(1), gatewayNode(2), gatewayNode(3)}}
	n.Local.Pods = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}
	require.NoError(t, n.returns(s))
	return s
}

// lines returns the lines of a plan with a word.
func lines(s dataplane.State, word string) (out []string) {
	for line := range strings.Lines(s.String()) {
		if strings.Contains(line, word) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// returnsTable returns the table of the return path in a plan.
func returnsTable(s dataplane.State) dataplane.Ruleset {
	table, _ := s[dataplane.RulesetKey(dataplane.ReturnsTable.Family, dataplane.ReturnsTable.Name)].(dataplane.Ruleset)
	return table
}

// rulesOf returns the rules of a chain of the return path in a plan.
func rulesOf(s dataplane.State, chain string) (out []string) {
	for _, c := range returnsTable(s).Chains {
		for _, r := range c.Rules {
			if c.Name == chain {
				out = append(out, r.Text)
			}
		}
	}
	return out
}

func TestReturns(t *testing.T) {
	one := gatewayNode(1)
	two := gatewayNode(2)
	three := gatewayNode(3)
	worker := gatewayNode(9)
	toAll := []string{
		"ip nexthop replace id 756154369 group 538050561,1",
		"ip nexthop replace id 756154370 group 538050562,1",
		"ip nexthop replace id 756154371 group 538050563,1",
		"ip route replace 0.0.0.0/0 table 170171191 nhid 756154371",
		"ip route replace throw 10.0.0.0/16 table 170171191",
		"ip route replace 0.0.0.0/0 table 170171202 nhid 756154369",
		"ip route replace throw 10.0.0.0/16 table 170171202",
		"ip route replace 0.0.0.0/0 table 170171217 nhid 756154370",
		"ip route replace throw 10.0.0.0/16 table 170171217",
		"ip rule add pref 99 fwmark 0x1f/0x3f lookup 170171191",
		"ip rule add pref 99 fwmark 0x2a/0x3f lookup 170171202",
		"ip rule add pref 99 fwmark 0x39/0x3f lookup 170171217",
	}
	routing := func(s dataplane.State) (out []string) {
		return append(append(lines(s, "group"), lines(s, "ip route")...), lines(s, "ip rule")...)
	}
	all := plannedReturns(t, worker, one, two, three)
	require.Equal(t, toAll, routing(all))
	require.Equal(t, `nft -f - <<'END'
table ip submariner-route-return {
	chain arrived {
		ct direction reply accept
		ct state related accept
		ether saddr 02:73:f0:12:00:01 ct mark and 0x3f == 0x2a accept
		ether saddr 02:73:f0:12:00:01 ct mark set ct mark and 0xffffffc0 xor 0x2a accept
		ether saddr 02:73:f0:12:00:02 ct mark and 0x3f == 0x39 accept
		ether saddr 02:73:f0:12:00:02 ct mark set ct mark and 0xffffffc0 xor 0x39 accept
		ether saddr 02:73:f0:12:00:03 ct mark and 0x3f == 0x1f accept
		ether saddr 02:73:f0:12:00:03 ct mark set ct mark and 0xffffffc0 xor 0x1f accept
		ct mark and 0x3f != 0x0 ct mark set ct mark and 0xffffffc0 xor 0x0 accept
	}
	chain choose {
		numgen random mod 3 < 1 ct mark set ct mark and 0xffffffc0 xor 0x2a meta mark set meta mark and 0xffffffc0 xor 0x2a accept
		numgen random mod 2 < 1 ct mark set ct mark and 0xffffffc0 xor 0x39 meta mark set meta mark and 0xffffffc0 xor 0x39 accept
		ct mark set ct mark and 0xffffffc0 xor 0x1f meta mark set meta mark and 0xffffffc0 xor 0x1f accept
	}
	chain marked {
		ct mark and 0x3f == 0x2a meta mark set meta mark and 0xffffffc0 xor 0x2a accept
		ct mark and 0x3f == 0x39 meta mark set meta mark and 0xffffffc0 xor 0x39 accept
		ct mark and 0x3f == 0x1f meta mark set meta mark and 0xffffffc0 xor 0x1f accept
	}
	chain output {
		type route hook output priority -150; policy accept;
		ct mark and 0x3f != 0x0 goto marked
		oifname "vx-submariner" ct state new ip daddr != 240.0.0.0/8 goto choose
	}
	chain postrouting {
		type filter hook postrouting priority -150; policy accept;
		meta mark and 0x3f != 0x0 oifname "vx-submariner" meta mark set meta mark and 0xffffffc0 xor 0x0 accept
	}
	chain prerouting {
		type filter hook prerouting priority -150; policy accept;
		iifname "vx-submariner" goto arrived
		ct mark and 0x3f != 0x0 goto marked
		ct state new ip daddr != 240.0.0.0/8 fib daddr oifname "vx-submariner" goto choose
	}
}
END`, returnsTable(all).String())

	t.Run("a gateway fails", func(t *testing.T) {
		ops := dataplane.Diff(all, plannedReturns(t, worker, one, three))
		var steps []string
		for _, op := range ops {
			steps = append(steps, op.String())
		}
		require.Contains(t, steps, "+ ip nexthop replace id 756154370 group 538050561,1/538050563,1")
		require.Contains(t, rulesOf(plannedReturns(t, worker, one, three), "prerouting"),
			`ct direction original ct mark and 0x3f == 0x39 ip daddr != 240.0.0.0/8 fib daddr oifname "vx-submariner" goto choose`,
			"its connections choose again")
		for _, step := range steps {
			require.NotContains(t, step, "ip route")
			require.NotContains(t, step, "ip rule")
		}
	})
	t.Run("a gateway does not answer", func(t *testing.T) {
		down := two
		down.Down = true
		require.Equal(t, routing(plannedReturns(t, worker, one, three)),
			routing(plannedReturns(t, worker, one, down, three)))
	})
	t.Run("no gateway answers", func(t *testing.T) {
		one := one
		two := two
		three := three
		one.Down = true
		two.Down = true
		three.Down = true
		require.Equal(t, toAll, routing(plannedReturns(t, worker, one, two, three)), "the last path is never withdrawn")
	})
	t.Run("all gateways fail", func(t *testing.T) {
		s := plannedReturns(t, worker)
		require.Empty(t, routing(s))
		require.Equal(t, rulesOf(all, "arrived"), rulesOf(s, "arrived"), "connections keep their marks")
		require.NotContains(t, s.String(), "goto choose")
	})
	t.Run("on a gateway", func(t *testing.T) {
		s := plannedReturns(t, one, one, two)
		require.Equal(t, []string{
			"ip nexthop replace id 756154370 group 538050562,1",
			"ip route replace 0.0.0.0/0 table 170171217 nhid 756154370",
			"ip route replace throw 10.0.0.0/16 table 170171217",
			"ip rule add pref 99 fwmark 0x39/0x3f lookup 170171217",
		}, routing(s), "its own mark is for others, and it has cables where a gateway has failed")
		require.Subset(t, rulesOf(s, "marked"), []string{
			`iifname "vx-submariner" ether saddr 02:73:f0:12:00:02 ct mark and 0x3f == 0x39 accept`,
			`iifname "vx-submariner" ether saddr 02:73:f0:12:00:03 ct mark and 0x3f == 0x1f accept`,
		}, "nothing goes back to its sender")
		two.Down = true
		require.Empty(t, routing(plannedReturns(t, one, one, two)),
			"it has cables of its own, also if no other gateway answers")
		require.NotContains(t, s.String(), "02:73:f0:12:00:01")
		require.NotContains(t, s.String(), "goto choose", "it uses its own cables")
		require.Subset(t, rulesOf(s, "marked"),
			[]string{`iifname "vxlan-tunnel" goto arrived`, `iifname "subvx-*" goto arrived`})
	})
	t.Run("the last active gateway", func(t *testing.T) { require.Empty(t, routing(plannedReturns(t, one, one))) })
	t.Run("one gateway node", func(t *testing.T) {
		s := dataplane.State{}
		require.NoError(t, Intra{Self: worker, Gateways: []Node{one}, Ranked: []Node{one}}.returns(s))
		require.Empty(t, s)
	})
	t.Run("with the rest of the plan", func(t *testing.T) {
		for _, self := range []Node{worker, one} {
			n := Intra{
				Self:     self,
				MTU:      1500,
				Gateways: []Node{one, two},
				Workers:  []Node{worker},
				Ranked:   []Node{one, two, three},
			}
			s, err := PlanIntra(n)
			require.NoError(t, err)
			require.NoError(t, n.returns(s), self.Name)
			for k, o := range s {
				for _, need := range o.Needs() {
					require.Contains(t, s, need, "%v", o)
				}
				switch o := o.(type) {
				case dataplane.Route:
					require.True(t, dataplane.RouteOwner.Tables.Has(uint32(o.Table)), "%v", o)
				case dataplane.Group:
					require.True(t, dataplane.RouteOwner.IDs.Has(o.ID), "%v", o)
				case dataplane.MarkRule:
					require.True(t, dataplane.RouteOwner.Priorities.Has(uint32(o.Priority)), "%v", o)
				}
				require.NotEmpty(t, k.Name)
			}
		}
	})
}

// Each gateway has a mark of its own, within the mask, which stays when others come and go.
// Gateways beyond the number of marks have none.
func TestReturnMarks(t *testing.T) {
	var gateways []Node
	for i := range 200 {
		gateways = append(gateways, gatewayNode(i))
	}
	few := returnMarks(gateways[:2])
	many := returnMarks(gateways)
	require.Len(t, many, dataplane.ReturnMask-1)
	seen := map[uint32]bool{}
	for name, mark := range many {
		require.NotZero(t, mark)
		require.Zero(t, mark&^dataplane.ReturnMask)
		require.False(t, seen[mark], "%s has the mark of another", name)
		seen[mark] = true
		require.True(t, dataplane.RouteOwner.Tables.Has(dataplane.ReturnTable+mark))
	}
	for name, mark := range few {
		require.Equal(t, mark, many[name])
	}
}
