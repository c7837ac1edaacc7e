//go:build linux

package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// A new pod has the addresses of the one before it, and its neighbours know the old MAC address.
// They use the new one at once, when the pod starts, and again when it begins to forward; so do
// those of a network that is added later.
func TestNewPodIsAnnounced(t *testing.T) {
	s := newNetworks(t)
	server(t, s.far, "192.0.2.1:80")
	old := func(ns *nstest.NS, dev, ip string) {
		ns.Run(fmt.Sprintf("ip neigh replace %s lladdr 02:00:00:00:00:99 dev %s nud reachable", ip, dev))
	}
	old(s.lan, "eth0", "192.168.1.254")
	require.Error(t, pings(s, "192.168.1.254"), "the packets go to the pod that is no longer there")

	program, err := os.Executable()
	require.NoError(t, err)
	c := balance("1", "1", "2", "1")
	c.Awaiting = true
	s.cnf.Start(fmt.Sprintf("%s=%s exec %s", settingsFile, s.dir, program))
	s.apply(c)
	require.NoError(t, pings(s, "192.168.1.254"), "the CNF is announced when it starts")
	time.Sleep((announcements + 1) * announceGap)
	old(s.lan, "eth0", "192.168.1.254") // another pod has taken the address
	c.Awaiting = false
	s.apply(c)
	open, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err, "it is announced when it begins to forward")
	open.Close()

	old(s.lan, "eth0", "192.168.1.253")
	s.cnf.Run("ip addr add 192.168.1.253/24 dev net0")
	start := time.Now()
	learned := func() bool { return !strings.Contains(s.lan.Run("ip neigh show 192.168.1.253"), "02:00:00:00:00:99") }
	s.until("an address that is added is announced", learned)
	old(s.lan, "eth0", "192.168.1.253") // as if the announcement had been lost
	s.until("it is announced again", learned)
	require.Less(t, time.Since(start), 5*time.Second)
	require.NoError(t, pings(s, "192.168.1.253"))
}

// pings pings an address from the LAN, once.
func pings(s *site, ip string) error {
	_, err := s.lan.Try("ping -c1 -W1 " + ip)
	return err
}
