//go:build linux

package kernel

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// The jump to a chain that is Last comes after all rules of others, wherever they add theirs, and
// before the first rule that refuses all packets. Rules after it that only accept do not matter.
func TestLastChain(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	c := dataplane.Chain{Table: "filter", Name: "SUBMARINER-LAST", Hook: "FORWARD", Last: true, Rules: []string{
		"-s 192.0.2.9/32 -j ACCEPT",
	}}
	ns.Run(`iptables -N OTHERS; iptables -A OTHERS -s 192.0.2.1 -j DROP; iptables -A FORWARD -j OTHERS
iptables -N ufw-reject; iptables -A ufw-reject -p udp -j ACCEPT; iptables -N ufw-log; iptables -A ufw-log -j LOG`)
	want := state(t, c)
	require.NotEmpty(t, settle(t, ns, h, want))
	const jump = "-A FORWARD -j SUBMARINER-LAST"
	for _, s := range []struct {
		name, command string
		before, after string // our jump then follows one rule, and precedes the other
		stays         bool   // the jump is where it must be
	}{
		{name: "after the others", before: "-A FORWARD -j OTHERS", stays: true},
		{
			name: "an accept is added", command: "iptables -A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT",
			before: "-A FORWARD -j OTHERS", stays: true,
		},
		{name: "a chain is added", command: "iptables -A FORWARD -j ufw-log", before: "-A FORWARD -j ufw-log"},
		{
			name: "a rule that drops some is added", command: "iptables -A FORWARD -s 192.0.2.2 -j DROP",
			before: "-A FORWARD -s 192.0.2.2/32 -j DROP",
		},
		{
			name:    "a rule that rejects all is added",
			command: `iptables -A FORWARD -m comment --comment "no \"more\"" -j REJECT`,
			before:  "-A FORWARD -s 192.0.2.2/32 -j DROP",
			after:   `-A FORWARD -m comment --comment "no \"more\"" -j REJECT --reject-with icmp-port-unreachable`,
			stays:   true,
		},
		{
			name: "a rule after the end is added", command: "iptables -A FORWARD -s 192.0.2.3 -j DROP",
			before: "-A FORWARD -s 192.0.2.2/32 -j DROP", stays: true,
		},
		{
			name:    "a chain that rejects all comes first",
			command: "iptables -A ufw-reject -j REJECT; iptables -I FORWARD 2 -j ufw-reject",
			before:  "-A FORWARD -j OTHERS", after: "-A FORWARD -j ufw-reject",
		},
		{name: "twice", command: "iptables -A FORWARD -j SUBMARINER-LAST", after: "-A FORWARD -j ufw-reject"},
		{name: "deleted", command: "iptables -D FORWARD -j SUBMARINER-LAST", after: "-A FORWARD -j ufw-reject"},
	} {
		t.Run(s.name, func(t *testing.T) {
			ns.Run(s.command)
			require.Equal(t, s.stays, len(settle(t, ns, h, want)) == 0)
			rules := ns.Run("iptables -S FORWARD")
			t.Log(rules)
			if s.before != "" {
				require.Regexp(t, fmt.Sprintf("(?s)%s\n.*%s\n", regexp.QuoteMeta(s.before), jump), rules)
			}
			if s.after != "" {
				require.Regexp(t, fmt.Sprintf("(?s)%s\n.*%s\n", jump, regexp.QuoteMeta(s.after)), rules)
			}
			require.Empty(t, settle(t, ns, h, want))
		})
	}
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("iptables-save"), "SUBMARINER")
}
