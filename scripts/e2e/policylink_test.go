//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pathMTU waits until every gateway has found that no larger packets get through to the others.
func pathMTU(t *testing.T, bytes string) {
	t.Helper()
	took := eventually(t, 90*time.Second, func() error {
		for _, c := range clusters {
			found := strings.Fields(
				kubectl(t, c, "-n", "submariner-operator", "get", "gateways.submariner.io", "-o",
					"jsonpath={.items[*].status.connections[*].pathMTU}"),
			)
			if want := slices.Repeat([]string{bytes}, len(clusters)-1); !slices.Equal(found, want) {
				return fmt.Errorf("%s found path MTUs of %v: want %v", c, found, want)
			}
		}
		return nil
	})
	t.Logf("a path MTU of %s is known to all after %.1f s", bytes, took.Seconds())
}

// What lies between the clusters lets through less than before: the gateways find out, and
// packets of every size pass all cables; likewise when it is as before.
func TestSmallerMTU(t *testing.T) {
	takesLong(t)
	t.Cleanup(func() { _, _ = sh("lab", "mtu", "1500") })
	before := map[string]int{}
	cs, _ := connections(t)
	for _, c := range cs {
		before[c.Cluster+c.RemoteCluster] = c.MTU
	}
	must(t, "lab", "mtu", "1400")
	pathMTU(t, "1400")
	cs, _ = connections(t)
	require.Len(t, cs, len(before))
	for _, c := range cs {
		require.LessOrEqual(t, c.MTU, before[c.Cluster+c.RemoteCluster]-(1500-1400)+40, "%s to %s", c.Cluster,
			c.RemoteCluster)
	}
	for pair := range wanted {
		from, to := workersOf(t, pair)
		sizes(t, from, to.ip)
		sizes(t, to, from.ip)
	}
	must(t, "lab", "mtu", "1500")
	pathMTU(t, "1500")
	from, to := workersOf(t, "cluster2 cluster3")
	sizes(t, from, to.ip)
}

// The gateway of cluster3 gets behind a router that translates what leaves: encrypted
// cables find their way, combined ones too, and everybody sees how.
func TestAddressTranslation(t *testing.T) {
	takesLong(t)
	passing(t, "inside")
	must(t, policyFor("cluster1 cluster3", "inside", "vxlan+wireguard")...)
	want := map[string]string{"cluster1 cluster3": "vxlan+wireguard", "cluster2 cluster3": "ipsec"}
	cabled(t, want)
	// attempt is what shows how clusters 1 and 2 have reached cluster3.
	translated := func(t *testing.T, within time.Duration, attempt string) {
		took := eventually(t, within, func() error {
			cs, _ := connections(t)
			for pair, driver := range want {
				if err := each(cs, pair, func(c connection) bool {
					return c.NAT && c.Status == "connected" && c.CableDriver == driver &&
						(c.RemoteCluster != "cluster3" || strings.Contains(strings.Join(c.Attempts, "; "), attempt))
				}); err != nil {
					return fmt.Errorf("%s: want an attempt %q: %w", pair, attempt, err)
				}
			}
			return nil
		})
		t.Logf("connected through a translation after %.1f s", took.Seconds())
		t.Log(must(t, "subctl", "show", "connections", "-o", "wide", "--contexts", "cluster1,cluster3"))
		cs, _ := connections(t)
		for _, c := range cs {
			for _, a := range c.Attempts {
				if _, waited, ok := strings.Cut(a, "no answer in "); ok {
					d, err := time.ParseDuration(strings.ReplaceAll(waited, " ", ""))
					require.NoError(t, err, a)
					require.Less(t, d, 15*time.Second, "it waits for 3 s at most, on an idle machine: %s", a)
				}
			}
		}
		flows(t, "cluster1", "cluster3")
		flows(t, "cluster3", "cluster2")
	}
	t.Cleanup(func() {
		must(t, "lab", "nat", "cluster3", "--off")
		for pair := range want {
			from, to := workersOf(t, pair)
			answers(t, from, to)
			eventually(t, 100*time.Second, func() error { // they look again every minute, and change their path
				cs, _ := connections(t)
				return each(cs, pair, func(c connection) bool { return !c.NAT && c.Status == "connected" })
			})
		}
	})
	t.Run("nothing is forwarded, nothing configured", func(t *testing.T) {
		must(t, "lab", "nat", "cluster3")
		translated(t, 100*time.Second, " learned: answered in ") // they look again every minute
	})
	t.Run("ports are forwarded, the address is told", func(t *testing.T) {
		node := gateway(t, "cluster3")
		tell := func(ip string) {
			kubectl(t, "cluster3", "annotate", "node", node, "gateway.submariner.io/public-ip=ipv4:"+ip, "--overwrite")
			eventually(t, 20*time.Second, func() error {
				if out := kubectl(t, "cluster1", "-n", "submariner-operator", "get", "endpoints.submariner.io", "-o",
					"jsonpath={.items[*].spec.public_ip}"); !strings.Contains(out, ip) {
					return fmt.Errorf("cluster1 knows of %q only", out)
				}
				return nil
			})
		}
		t.Cleanup(func() { kubectl(t, "cluster3", "annotate", "node", node, "gateway.submariner.io/public-ip-") })
		tell("10.100.3.253") // there is nobody
		must(t, "lab", "nat", "cluster3", "--forward", "4490,4500,4501")
		tell("10.100.3.254")
		// they look again when an Endpoint changes
		translated(t, 30*time.Second, "10.100.3.254:4490 public: answered in ")
	})
}
