//go:build linux

package agent

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"subctl/sdewan"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// uplinksFile has the uplinks of a test that has others than uplinks.
const uplinksFile = "uplinks"

func uplinksOf(dir string) (out map[string]sdewan.Uplink) {
	b, err := os.ReadFile(filepath.Join(dir, uplinksFile))
	if err != nil || json.Unmarshal(b, &out) != nil {
		return uplinks()
	}
	return out
}

// The one ping that an uplink sends when its link has come up finds the routes that the agent has
// planned, and so does the first one of a CNF. The host that it pings is reached by these routes
// only, and the next ping would be sent after an hour.
func TestPingAfterLink(t *testing.T) {
	s := newNetworks(t)
	u := uplinks()["isp1"]
	u.TrackIPs = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	u.Interval = 3600
	u.Timeout = 2
	u.Up = 5
	u.Down = 1
	b, err := json.Marshal(map[string]sdewan.Uplink{"isp1": u, "isp2": uplinks()["isp2"]})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, uplinksFile), b, 0o600))
	s.start()
	s.apply(rest.Config{})
	pinged := func() (turns int) {
		s.until("a ping was answered or lost", func() bool { return s.status().Wan.Interfaces["net1"].Turn > 0 })
		return s.status().Wan.Interfaces["net1"].Turn
	}
	flap := func() {
		t.Helper()
		before := pinged()
		s.cnf.Run("ip link set net1 down")
		s.until("the link is down", func() bool { return !s.status().Wan.Interfaces["net1"].Up })
		s.cnf.Run("ip link set net1 up")
		s.until("the link is up, and a ping was answered or lost", func() bool {
			is := s.status().Wan.Interfaces["net1"]
			return is.Up && is.Turn > before
		})
	}
	pinged()
	require.Equal(t, "online", s.status().Wan.Interfaces["net1"].Status, "when the CNF has started")
	flap()
	require.Equal(t, "online", s.status().Wan.Interfaces["net1"].Status, "when the link is back")
	s.isp1.Run(
		"nft -f - <<'END'\ntable ip dead { chain in { type filter hook prerouting priority -300; iifname \"cnf\" drop; }; }\nEND")
	flap()
	s.online("net1", false)
	s.isp1.Run("nft delete table ip dead")
	flap()
	s.online("net1", true)
}
