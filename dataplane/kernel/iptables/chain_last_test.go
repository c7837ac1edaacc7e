//go:build linux

package iptables

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A rule that refuses all packets does so without a match, or leads to a chain that decides about
// nothing else.
func TestEndsAll(t *testing.T) {
	saved := parseSave(`*filter
:FORWARD DROP [0:0]
:rejects - [0:0]
:logs - [0:0]
:drops - [0:0]
:returns - [0:0]
-A rejects -s 192.0.2.1/32 -j ACCEPT
-A rejects -j LOG --log-prefix "[no] "
-A rejects -j REJECT --reject-with icmp-port-unreachable
-A logs -j LOG
-A drops -s 192.0.2.1/32 -j DROP
-A drops -j DROP
-A returns -j RETURN
-A returns -j DROP
`)
	for rule, want := range map[string]bool{
		"-j DROP": true, "-j REJECT --reject-with icmp-host-prohibited": true,
		`-m comment --comment "a -b \" c" -j DROP`: true, "-m comment --comment x -j DROP": true,
		"-j rejects": true, "-g rejects": true,
		"-j ACCEPT": false, "-j logs": false, "-j drops": false, "-j returns": false, "-s 192.0.2.1/32 -j DROP": false,
		`-m comment --comment "x" -s 192.0.2.1/32 -j DROP`: false, "-m conntrack --ctstate INVALID -j DROP": false,
		"-i eth0 -j rejects": false,
	} {
		require.Equal(t, want, endsAll(saved, savedRule{table: "filter", chain: "FORWARD", rule: rule}), rule)
	}
}
