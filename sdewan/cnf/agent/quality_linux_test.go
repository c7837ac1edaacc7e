//go:build linux

package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// Connections leave an uplink that loses more packets than its policy allows, although it is
// online, and return when it is good again. If all are bad, the first one is used.
func TestTrafficQuality(t *testing.T) {
	s := newNetworks(t)
	tracked := uplinks()
	for name, u := range tracked {
		u.Count = 10
		u.Down = 60 // it is lossy, and not offline
		tracked[name] = u
	}
	b, err := json.Marshal(tracked)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "uplinks"), b, 0o600))
	s.start()
	server(t, s.far, "192.0.2.1:80")
	c := balance("1", "1", "2", "1")
	c.Policies[0].Members[0].MaxLoss = "10"
	s.apply(c)
	s.far.Run(counters)
	through := func() (one, two int) {
		before1, before2 := s.count()
		if c, _, err := dial(s.lan, "", "192.0.2.1:80"); err == nil {
			c.Close()
		}
		one, two = s.count()
		return one - before1, two - before2
	}
	first := func() bool { one, two := through(); return one > 0 && two == 0 }
	second := func() bool { one, two := through(); return one == 0 && two > 0 }
	require.True(t, first())

	// netem is not in every kernel
	lossy := `nft 'table ip lossy { chain in { type filter hook prerouting priority -300; iifname "cnf" numgen random mod 100 < 40 drop; }; }'`
	s.isp1.Run(lossy)
	start := time.Now()
	s.until("its status says that it exceeds the limit", func() bool {
		net1 := s.status().Wan.Interfaces["net1"]
		return net1.Status == "online" && net1.Quality != nil && slices.Equal(net1.Quality.Over, []string{"both"})
	})
	t.Logf("after %v", time.Since(start))
	s.until("it is left", second)
	s.isp1.Run("nft delete table ip lossy")
	s.until("it is used again", first)

	s.isp1.Run(lossy)
	s.until("it is left again", second)
	c.Policies[0].Members = c.Policies[0].Members[:1]
	s.apply(c)
	s.until("a lossy uplink is better than none", first)
}

// Connections of a policy none of whose uplinks is online meet its last resort.
func TestTrafficLastResort(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	server(t, s.node, "10.244.0.1:80")
	s.node.Run("ip addr add 192.0.2.1/32 dev lo; ip route add 192.168.1.0/24 via 10.244.0.7")
	server(t, s.node, "192.0.2.1:80")
	s.far.Run(counters)
	c := balance("1", "1", "2", "1")
	c.Policies[0].Members = c.Policies[0].Members[:1]
	c.Policies[0].LastResort = "default"
	s.apply(c)
	s.isp1.Run("ip link set cnf down")
	s.online("net1", false)
	s.until("connections take the default route of the pod", func() bool {
		c, _, err := dial(s.lan, "", "192.0.2.1:80")
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	one, two := s.count()
	require.Equal(t, []int{0, 0}, []int{one, two}, "not through the other uplink")
	for resort, want := range map[string]string{"": "unreachable", "blackhole": "i/o timeout"} {
		c.Policies[0].LastResort = resort
		s.apply(c)
		_, _, err := dial(s.lan, "", "192.0.2.1:80")
		require.ErrorContains(t, err, want, resort)
	}
}

// The fields are checked where they come in.
func TestQualityLimits(t *testing.T) {
	member := rest.Member{Interface: "net1", Metric: "1", Weight: "1"}
	for _, wrong := range []rest.Policy{
		{Name: "p", Members: []rest.Member{member}, LastResort: "lte"},
		{Name: "p", Members: []rest.Member{{Interface: "net1", Metric: "1", Weight: "1", MaxLoss: "101"}}},
		{Name: "p", Members: []rest.Member{{Interface: "net1", Metric: "1", Weight: "1", MaxJitter: "0"}}},
	} {
		require.Error(t, rest.Policies.Check(&wrong))
	}
}
