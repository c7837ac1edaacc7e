//go:build linux

package agent

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of the connections that a policy spreads, none takes an uplink that is known to be dead: neither
// a new one, nor one that has had no answer through it before, nor one that begins when only the
// link of the uplink is back.
func TestTrafficDeadUplink(t *testing.T) {
	for _, test := range origins {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.far.Run("ip route add 10.244.0.0/24 via 10.1.0.1")
			server(t, s.far, "192.0.2.1:80")
			echo(t, s.far, "192.0.2.1:4500")
			c := balance("1", "1", "1", "1")
			test.config(&c)
			s.apply(c)
			s.isp2.Run(
				"nft -f - <<'END'\ntable ip dead { chain in { type filter hook prerouting priority -300; iifname \"cnf\" drop; }; }\nEND")
			from := test.from(s)
			var flows []*flow
			answered := func() (n int) {
				for _, f := range flows {
					if f.ask() {
						n++
					}
				}
				return n
			}
			for range 8 {
				flows = append(flows, datagrams(t, from, "192.0.2.1:4500"))
			}
			require.Less(t, answered(), len(flows), "the CNF does not know yet that net2 is dead")
			s.online("net2", false)
			s.until("all have answers", func() bool { return answered() == len(flows) })
			begin := func() {
				for range 8 {
					flows = append(flows, datagrams(t, from, "192.0.2.1:4500"))
					from.Do(func() {
						c, err := net.DialTimeout("tcp4", "192.0.2.1:80", 10*time.Second)
						require.NoError(t, err)
						c.Close()
					})
				}
				require.Equal(t, len(flows), answered())
			}
			begin()
			s.isp2.Run("ip link set cnf down")
			s.until("the link is down", func() bool { return !s.status().Wan.Interfaces["net2"].Up })
			s.isp2.Run("ip link set cnf up && ip route replace 192.168.1.0/24 via 203.0.113.2")
			s.until("the link is up", func() bool { return s.status().Wan.Interfaces["net2"].Up })
			begin()
			s.isp2.Run("nft delete table ip dead")
			s.online("net2", true)
		})
	}
}
