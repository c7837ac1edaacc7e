//go:build linux

package agent

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// A hub that is told to end tells its edges: they do not wait for an answer from the tunnels that
// the hub has forgotten, and are back soon after the next pod of the hub is there. Nothing leaves
// in clear meanwhile, at either end.
func TestHubIsReplaced(t *testing.T) {
	s := newSite(t)
	// without tunnels, packets pass in clear: only then their absence means something
	s.cnf.Run("ip route add 10.1.0.0/24 via 198.51.100.1")
	s.lan.Run("ping -c1 -W10 10.1.0.2")
	up := s.edge("10.1.0.0/24", "192.168.1.0/24")
	s.apply(hub(50))
	s.until("the tunnel is up", up)
	s.far.Run("ping -c1 -W5 -I 10.1.0.2 192.168.1.2")
	seen := s.isp1.Watch("cnf")
	s.lan.Start("exec ping -i 0.02 " + nstest.Pattern + " 10.1.0.2 >/dev/null")
	s.far.Start("exec ping -i 0.02 " + nstest.Pattern + " -I 10.1.0.2 192.168.1.2 >/dev/null")

	told := time.Now()
	s.end()
	ended := time.Since(told)
	require.Less(t, ended, endTime)
	require.False(t, up(), "the edge has not been told")
	time.Sleep(3 * time.Second) // until there is the next pod
	s.start()
	started := time.Now()
	s.until("packets pass again", s.passes)
	t.Logf("the CNF took %v to end; packets passed %v after the next CNF had started", ended, time.Since(started))
	require.Less(t, time.Since(started), 10*time.Second, "the edge does not try often enough")
	require.False(t, seen().Marker, "packets leave in clear while the hub is away")
}

// A hub that was away for a while, and then refuses an edge at first, as it does not have all its
// rules yet, has the edge back soon after it has them.
func TestHubRefusesAtFirst(t *testing.T) {
	s := newSite(t)
	up := s.edge("10.1.0.0/24", "192.168.1.0/24")
	rules := hub(2)
	s.apply(rules)
	s.until("the tunnel is up", up)
	time.Sleep(time.Second) // the edge has seen that it is
	s.end()
	time.Sleep(8 * time.Second)
	s.write(rest.Config{Remotes: rules.Remotes[1:]})
	s.start()
	time.Sleep(5 * time.Second)
	s.apply(rules)
	complete := time.Now()
	s.until("packets pass again", s.passes)
	t.Logf("packets passed %v after the CNF had the rule", time.Since(complete))
	require.Less(t, time.Since(complete), 5*time.Second, "the edge does not try often enough")
}

// hub returns a number of tunnels that edges begin, each with a key of its own.
func hub(edges int) (c rest.Config) {
	for i := range edges {
		c.Remotes = append(c.Remotes, rest.Remote{
			Name:         fmt.Sprint("edge-", i),
			Gateway:      "%any",
			Auth:         "psk",
			PreSharedKey: fmt.Sprint("sesame-", i),
			LocalID:      "hub.test",
			RemoteID:     fmt.Sprintf("edge-%d.test", i),
			Connections: []rest.Connection{
				{
					Name:         "a",
					Type:         "tunnel",
					Mode:         "add",
					LocalSubnet:  "192.168.1.0/24",
					RemoteSubnet: fmt.Sprintf("10.1.%d.0/24", i),
				},
			},
		})
	}
	return c
}

// passes reports whether a packet from the network of the edge has an answer.
func (s *site) passes() bool {
	_, err := s.far.Try("ping -c1 -W1 -I 10.1.0.2 192.168.1.2")
	return err == nil
}

// edge makes the first provider the edge of a tunnel from a network to one of the CNF, which it
// begins. It returns a function that reports whether the tunnel is up.
func (s *site) edge(from, to string) (up func() bool) {
	s.t.Helper()
	var host *kernel.Host
	world := cnf.World{}
	s.isp1.Do(func() {
		f, err := kernel.ReadFacts()
		require.NoError(s.t, err)
		world.IPsec = f.IPsec
		host, err = kernel.New(dataplane.CNFOwner)
		require.NoError(s.t, err)
	})
	if world.IPsec.Name == "" {
		if os.Getenv(nstest.RequireRoot) == "1" {
			s.t.Fatalf("no IPsec: %s", world.IPsec.Missing)
		}
		s.t.Skip("no IPsec: " + world.IPsec.Missing)
	}
	sync := func(c rest.Config) {
		want, report := cnf.Plan(c, world)
		require.Empty(s.t, report)
		s.isp1.Do(func() {
			_, err := dataplane.Sync(context.Background(), host, want)
			require.NoError(s.t, err)
		})
	}
	s.t.Cleanup(func() {
		sync(rest.Config{})
		host.Close()
	})
	sync(rest.Config{Remotes: []rest.Remote{{
		Name:         "hub",
		Gateway:      "198.51.100.2",
		Auth:         "psk",
		PreSharedKey: "sesame-0",
		LocalID:      "edge-0.test",
		RemoteID:     "hub.test",
		Connections: []rest.Connection{
			{Name: "a", Type: "tunnel", Mode: "start", LocalSubnet: from, RemoteSubnet: to},
		},
	}}})
	return func() bool {
		states, err := host.RemoteStates()
		require.NoError(s.t, err)
		return len(states) == 1 && len(states[0].Children) == 1 && states[0].Children[0].Up
	}
}
