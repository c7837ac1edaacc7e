//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Charon, wireguard-go and the gateway's agent die under traffic: it comes back.
func TestKilledUnderTraffic(t *testing.T) {
	takesLong(t)
	for _, c := range []struct {
		victim string
		pairs  []string // that may notice
		told   string   // the name in an Event, if the agent tells of it
	}{
		{"wireguard-go", []string{"cluster1 cluster3"}, "wireguard-go"},
		{"charon-systemd", []string{"cluster2 cluster3"}, "charon"},
		// and with it both of the others
		{"subctl agent gateway", []string{"cluster1 cluster3", "cluster2 cluster3"}, ""},
	} {
		t.Run(c.victim, func(t *testing.T) {
			gw := gateway(t, "cluster3")
			if _, err := sh("lab", "exec", gw, "--", "pgrep", "-f", "^[^ ]*"+c.victim); err != nil {
				t.Skipf("no %s: the kernel does it", c.victim)
			}
			lossless(t, 1, func() map[string]lost {
				all := startStreams(t, slices.Collect(maps.Keys(wanted))...)
				on(t, gw, "pkill -9 -f '^[^ ]*"+c.victim+"'")
				for _, pair := range c.pairs {
					from, to := workersOf(t, pair)
					answers(t, from, to)
				}
				cabled(t, wanted)
				if c.told != "" {
					eventually(t, 20*time.Second, func() error {
						if told := kubectl(t, "cluster3", "-n", "submariner-operator", "get", "events",
							"--field-selector",
							"reason=CableProgramRestarted"); !strings.Contains(told, c.told+" was found dead") {
							return fmt.Errorf("no Event tells of it: %s", told)
						}
						return nil
					})
				}
				ls := all.stop(t)
				for _, pair := range c.pairs {
					require.Less(t, ls[pair].LongestGapMs, 30000.0, pair)
					delete(ls, pair)
				}
				return ls
			})
		})
	}
}

// All route agents get new pods under traffic, then all gateway agents: what is in the
// kernel goes on, what a program of the pod handles comes back.
func TestRolloutRestart(t *testing.T) {
	takesLong(t)
	restart := func(t *testing.T, name string) map[string]lost {
		all := startStreams(t, slices.Collect(maps.Keys(wanted))...)
		for _, c := range clusters {
			kubectl(t, c, "-n", "submariner-operator", "rollout", "restart", "daemonset/"+name)
		}
		for _, c := range clusters {
			kubectl(t, c, "-n", "submariner-operator", "rollout", "status", "daemonset/"+name, "--timeout=300s")
		}
		cabled(t, wanted)
		return all.stop(t)
	}
	t.Run("route agents", func(t *testing.T) {
		lossless(t, 1, func() map[string]lost { return restart(t, "submariner-routeagent") })
	})
	t.Run("gateways", func(t *testing.T) {
		lossless(t, 1, func() map[string]lost {
			ls := restart(t, "submariner-gateway")
			for pair, l := range ls {
				if wanted[pair] != "vxlan" {
					require.Less(t, l.LongestGapMs, 30000.0, pair)
					delete(ls, pair)
				}
			}
			return ls
		})
	})
}
