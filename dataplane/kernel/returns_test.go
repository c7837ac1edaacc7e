//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// returnsOf returns the table for the replies to connections of some gateways.
func returnsOf(gateways int) dataplane.Returns {
	r := dataplane.Returns{
		Table: dataplane.RouteOwner.Returns, Dev: dataplane.IntraDevice, Mask: dataplane.ReturnMask, Cables: []string{"vxlan-tunnel", "subvx-*"},
	}
	for i := range gateways {
		r.Gateways = append(r.Gateways, dataplane.ReturnGateway{MAC: fmt.Sprintf("02:73:f0:12:00:%02x", i+1), Mark: uint32(i + 1)})
	}
	return r
}

// choiceOf returns the table of a worker, which chooses among the gateways. The first is down; the others have the weights 1, 2, ….
func choiceOf(gateways int) dataplane.Returns {
	r := returnsOf(gateways)
	r.Cables, r.Near = nil, netip.MustParsePrefix("240.0.0.0/8")
	for i := range r.Gateways {
		r.Gateways[i].Weight, r.Gateways[i].Down = i, i == 0
	}
	return r
}

// nft lists the table as planned. Whatever another program does to it, Watch notices and one
// Sync repairs. In the end there is no table.
func TestReturns(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	want := state(t, returnsOf(2))
	require.Len(t, settle(t, ns, h, want), 1)
	require.Empty(t, dataplane.Diff(look(t, ns, h), want))
	const table = "submariner-route-return"
	signals := watch(t, ns, 10*time.Millisecond)
	for name, damage := range map[string]string{
		"table deleted":  "nft delete table ip " + table,
		"table dormant":  "nft 'add table ip " + table + " { flags dormant; }'",
		"rule deleted":   "nft delete rule ip " + table + " marked handle $(nft -a list chain ip " + table + " marked | grep -o 'handle [0-9]*$' | tail -1 | cut -d' ' -f2)",
		"rule added":     "nft insert rule ip " + table + " prerouting accept",
		"chain flushed":  "nft flush chain ip " + table + " arrived",
		"all flushed":    "nft flush table ip " + table,
		"chain added":    "nft add chain ip " + table + " x",
		"policy drop":    "nft 'chain ip " + table + " output { policy drop; }'",
		"set of a guest": "nft 'add set ip " + table + " x { type ipv4_addr; }'",
	} {
		t.Run(name, func(t *testing.T) {
			calm(signals, 50*time.Millisecond)
			ns.Run(damage)
			require.NotEmpty(t, dataplane.Diff(look(t, ns, h), want), "Observe must see it")
			select {
			case <-signals:
			case <-time.After(10 * time.Second):
				require.Fail(t, "Watch did not notice")
			}
			require.NotEmpty(t, settle(t, ns, h, want))
			require.Empty(t, dataplane.Diff(look(t, ns, h), want))
		})
	}
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("nft list tables"), "submariner")
}

// The table is the one that the printed commands make.
func TestReturnsAsPrinted(t *testing.T) {
	none := returnsOf(0)
	none.Cables = nil
	for _, r := range []dataplane.Returns{none, returnsOf(3), choiceOf(1), choiceOf(4)} {
		ns, h := node(t, dataplane.RouteOwner)
		settle(t, ns, h, state(t, r))
		typed := nstest.New(t, "typed")
		typed.Run("set -e\n" + r.String())
		list := "nft list table ip " + r.Table
		var ours []string
		for line := range strings.Lines(ns.Run(list)) {
			line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), " comment ")
			ours = append(ours, line)
		}
		require.Equal(t, strings.TrimRight(typed.Run(list), "\n"), strings.TrimRight(strings.Join(ours, "\n"), "\n"))
		require.Len(t, ours, strings.Count(typed.Run(list), "\n"))
	}
}

// A mark that a plan cannot have is refused with an error, and the table stays.
func TestReturnsRefused(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	settle(t, ns, h, state(t, returnsOf(1)))
	bad := returnsOf(2)
	bad.Gateways[1].MAC = "none"
	wide := choiceOf(2)
	wide.Near = netip.MustParsePrefix("240.0.0.0/7")
	for want, bad := range map[string]dataplane.Returns{"none": bad, "240.0.0.0/7": wide} {
		var err error
		ns.Do(func() { _, err = dataplane.Sync(t.Context(), h, state(t, bad)) })
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, settle(t, ns, h, state(t, returnsOf(1))))
}
