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

// returnPath returns the plan of the return path of a node, in a cluster with gateway nodes 1 to 3.
func returnPath(t *testing.T, self Node, active ...Node) dataplane.State {
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

// after returns what follows a text in each line.
func after(text string, lines []string) (out []string) {
	for _, line := range lines {
		_, rest, _ := strings.Cut(line, text)
		out = append(out, rest)
	}
	return out
}

func TestReturns(t *testing.T) {
	one, two, three, worker := gatewayNode(1), gatewayNode(2), gatewayNode(3), gatewayNode(9)
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
	all := returnPath(t, worker, one, two, three)
	require.Equal(t, toAll, routing(all))
	require.Equal(t, []string{
		"nft add table ip submariner-route-return",
		"nft add chain ip submariner-route-return arrived",
		"nft add chain ip submariner-route-return chosen",
		"nft add chain ip submariner-route-return marked",
		"nft 'add chain ip submariner-route-return prerouting { type filter hook prerouting priority -150; }'",
		"nft 'add chain ip submariner-route-return output { type route hook output priority -150; }'",
		"nft 'add chain ip submariner-route-return postrouting { type filter hook postrouting priority -150; }'",
		"nft 'add rule ip submariner-route-return arrived ct direction reply accept'",
		"nft 'add rule ip submariner-route-return arrived ct state related accept'",
		"nft 'add rule ip submariner-route-return arrived ether saddr 02:73:f0:12:00:01 ct mark and 0x3f == 0x2a accept'",
		"nft 'add rule ip submariner-route-return arrived ether saddr 02:73:f0:12:00:01 ct mark set ct mark and 0xffffffc0 xor 0x2a accept'",
		"nft 'add rule ip submariner-route-return arrived ether saddr 02:73:f0:12:00:02 ct mark and 0x3f == 0x39 accept'",
		"nft 'add rule ip submariner-route-return arrived ether saddr 02:73:f0:12:00:02 ct mark set ct mark and 0xffffffc0 xor 0x39 accept'",
		"nft 'add rule ip submariner-route-return arrived ether saddr 02:73:f0:12:00:03 ct mark and 0x3f == 0x1f accept'",
		"nft 'add rule ip submariner-route-return arrived ether saddr 02:73:f0:12:00:03 ct mark set ct mark and 0xffffffc0 xor 0x1f accept'",
		"nft 'add rule ip submariner-route-return arrived ct mark and 0x3f != 0x0 ct mark set ct mark and 0xffffffc0 xor 0x0 accept'",
		"nft 'add rule ip submariner-route-return marked ct mark and 0x3f == 0x2a meta mark set meta mark and 0xffffffc0 xor 0x2a accept'",
		"nft 'add rule ip submariner-route-return chosen numgen random mod 3 < 1 ct mark set ct mark and 0xffffffc0 xor 0x2a meta mark set meta mark and 0xffffffc0 xor 0x2a accept'",
		"nft 'add rule ip submariner-route-return marked ct mark and 0x3f == 0x39 meta mark set meta mark and 0xffffffc0 xor 0x39 accept'",
		"nft 'add rule ip submariner-route-return chosen numgen random mod 2 < 1 ct mark set ct mark and 0xffffffc0 xor 0x39 meta mark set meta mark and 0xffffffc0 xor 0x39 accept'",
		"nft 'add rule ip submariner-route-return marked ct mark and 0x3f == 0x1f meta mark set meta mark and 0xffffffc0 xor 0x1f accept'",
		"nft 'add rule ip submariner-route-return chosen ct mark set ct mark and 0xffffffc0 xor 0x1f meta mark set meta mark and 0xffffffc0 xor 0x1f accept'",
		`nft 'add rule ip submariner-route-return prerouting iifname "vx-submariner" goto arrived'`,
		"nft 'add rule ip submariner-route-return prerouting ct mark and 0x3f != 0x0 goto marked'",
		`nft 'add rule ip submariner-route-return prerouting ct state new ip daddr != 240.0.0.0/8 fib daddr oifname "vx-submariner" goto chosen'`,
		"nft 'add rule ip submariner-route-return output ct mark and 0x3f != 0x0 goto marked'",
		`nft 'add rule ip submariner-route-return output oifname "vx-submariner" ct state new ip daddr != 240.0.0.0/8 goto chosen'`,
		`nft 'add rule ip submariner-route-return postrouting meta mark and 0x3f != 0x0 oifname "vx-submariner" meta mark set meta mark and 0xffffffc0 xor 0x0 accept'`,
	}, lines(all, "nft"))

	t.Run("a gateway fails", func(t *testing.T) {
		ops := dataplane.Diff(all, returnPath(t, worker, one, three))
		var steps []string
		for _, op := range ops {
			steps = append(steps, op.String())
		}
		require.Contains(t, steps, "+ ip nexthop replace id 756154370 group 538050561,1/538050563,1")
		require.Contains(t, lines(returnPath(t, worker, one, three), "nft"),
			`nft 'add rule ip submariner-route-return prerouting ct direction original ct mark and 0x3f == 0x39 ip daddr != 240.0.0.0/8 fib daddr oifname "vx-submariner" goto chosen'`, "its connections choose again")
		for _, step := range steps {
			require.NotContains(t, step, "ip route")
			require.NotContains(t, step, "ip rule")
		}
	})
	t.Run("a gateway does not answer", func(t *testing.T) {
		down := two
		down.Down = true
		require.Equal(t, routing(returnPath(t, worker, one, three)), routing(returnPath(t, worker, one, down, three)))
	})
	t.Run("no gateway answers", func(t *testing.T) {
		one, two, three := one, two, three
		one.Down, two.Down, three.Down = true, true, true
		require.Equal(t, toAll, routing(returnPath(t, worker, one, two, three)), "the last path is never withdrawn")
	})
	t.Run("all gateways fail", func(t *testing.T) {
		s := returnPath(t, worker)
		require.Empty(t, routing(s))
		require.Subset(t, lines(all, "nft"), lines(s, "arrived"), "connections keep their marks")
		require.NotContains(t, s.String(), "goto chosen")
	})
	t.Run("on a gateway", func(t *testing.T) {
		s := returnPath(t, one, one, two)
		require.Equal(t, []string{
			"ip nexthop replace id 756154370 group 538050562,1",
			"ip route replace 0.0.0.0/0 table 170171217 nhid 756154370",
			"ip route replace throw 10.0.0.0/16 table 170171217",
			"ip rule add pref 99 fwmark 0x39/0x3f lookup 170171217",
		}, routing(s), "its own mark is for others, and it has cables where a gateway has failed")
		require.Equal(t, []string{
			`marked iifname "vx-submariner" ether saddr 02:73:f0:12:00:02 ct mark and 0x3f == 0x39 accept'`,
			`marked iifname "vx-submariner" ether saddr 02:73:f0:12:00:03 ct mark and 0x3f == 0x1f accept'`,
		}, after("submariner-route-return ", lines(s, "marked iifname \"vx-submariner\"")), "nothing goes back to its sender")
		two.Down = true
		require.Empty(t, routing(returnPath(t, one, one, two)), "it has cables of its own, also if no other gateway answers")
		require.NotContains(t, s.String(), "02:73:f0:12:00:01")
		require.NotContains(t, s.String(), "goto chosen", "it uses its own cables")
		require.Contains(t, s.String(), `marked iifname "vxlan-tunnel" goto arrived`)
		require.Contains(t, s.String(), `marked iifname "subvx-*" goto arrived`)
	})
	t.Run("the last active gateway", func(t *testing.T) { require.Empty(t, routing(returnPath(t, one, one))) })
	t.Run("one gateway node", func(t *testing.T) {
		s := dataplane.State{}
		require.NoError(t, Intra{Self: worker, Gateways: []Node{one}, Ranked: []Node{one}}.returns(s))
		require.Empty(t, s)
	})
	t.Run("with the rest of the plan", func(t *testing.T) {
		for _, self := range []Node{worker, one} {
			n := Intra{Self: self, MTU: 1500, Gateways: []Node{one, two}, Workers: []Node{worker}, Ranked: []Node{one, two, three}}
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

// Each gateway has a mark of its own, within the mask, which stays when others come and go. Gateways beyond the
// number of marks have none.
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
