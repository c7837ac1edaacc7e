package agent

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
)

// A gateway forwards what no program of the node has decided about, whatever the node does with the
// rest, and answers may take another gateway than the connection: all connections work, in both
// directions.
func TestForwarding(t *testing.T) {
	const works = "works"
	for name, c := range map[string]struct {
		carries, bridged bool
		standby          bool
		firewall         string // on all nodes of west
	}{
		"the CNI carries packets to pods, and FORWARD accepts": {
			carries: true, firewall: "iptables -P FORWARD ACCEPT",
		},
		"the CNI carries packets to pods, and FORWARD drops":        {carries: true},
		"the same, with a standby gateway":                          {carries: true, standby: true},
		"pods share a bridge with other nodes":                      {carries: true, bridged: true},
		"the CNI carries packets, and a last rule rejects the rest": {carries: true, firewall: rejectRest},
		"Docker":                                {firewall: withoutCNI + docker},
		"Docker and a CNI that carries packets": {carries: true, firewall: docker},
		"ufw that drops":                        {firewall: withoutCNI + ufw("iptables -P FORWARD DROP")},
		"ufw that rejects": {
			firewall: withoutCNI + ufw("iptables -A ufw-reject-forward -j REJECT"),
		},
		"iptables-services": {firewall: withoutCNI + rejectRest},
	} {
		t.Run(name, func(t *testing.T) {
			fabric := newFabric(t)
			east := twoGateways(t, fabric, 1, "east")
			west := twoGateways(t, fabric, 2, "west")
			if c.standby {
				west.single = true
				west.elect("gw2")
			}
			if c.carries {
				ownRoutes(west)
			}
			for _, node := range west.names {
				ns := west.nodes[node]
				if c.bridged {
					ns.Run("ip link set cali0 down; ip link set cali0 name weave; ip link set weave up; iptables -A " +
						"FORWARD -o weave -j ACCEPT; iptables -A FORWARD -i weave -j ACCEPT")
				}
				if c.firewall != "" {
					ns.Run(c.firewall)
				}
			}
			east.sync(t, west)
			west.sync(t, east)
			require.Zero(t, east.sync(t, west)+west.sync(t, east), "the second sync must find nothing to do")
			table := func(from, to *side) {
				var failed []string
				for _, f := range from.names {
					for _, n := range to.names {
						for port := 8080; port < 8083; port++ {
							at := fmt.Sprintf("%s:%d", to.podIP(n), port)
							if result := attempt(from.pods[f], at, to.pods[n], at); result != works {
								failed = append(failed, fmt.Sprintf("%s %s to %s %s: %s", from.id, f, to.id, n, result))
							}
						}
					}
				}
				require.Empty(t, failed, "of %d", 3*len(from.names)*len(to.names))
			}
			table(west, east)
			table(east, west)
			for i := range 6 { // connections to Services, of which each gateway translates some
				for _, way := range [][2]*side{{east, west}, {west, east}} {
					from := way[0]
					to := way[1]
					service := fmt.Sprintf("10.10%d.0.%d", to.net, 10+i)
					node := to.names[i%3]
					for _, gw := range to.names[:to.gateways] {
						to.nodes[gw].Run(fmt.Sprintf("iptables -t nat -A PREROUTING -d %s/32 -p tcp --dport 80 -j "+
							"DNAT --to-destination %s:8080", service, to.podIP(node)))
					}
					require.Equal(t, works,
						attempt(from.pods[from.names[i%2]], service+":80", to.pods[node], to.podIP(node)+":8080"))
				}
			}
			pingEach(t, east, west)
			pingEach(t, west, east)
			east.leave(t)
			west.leave(t)
		})
	}
}

// pingEach has each pod of a cluster ping each pod of another one. Connection tracking calls an
// answer INVALID if it has not seen the question.
func pingEach(t *testing.T, from, to *side) {
	t.Helper()
	for _, f := range from.names {
		for _, n := range to.names {
			_, err := from.pods[f].Try("ping -c1 -W3 " + to.podIP(n))
			require.NoError(t, err, "from %s %s to %s %s", from.id, f, to.id, n)
		}
	}
}

// Rules of nodes, in the shape that programs give them. withoutCNI removes what the CNI of newSide
// accepts.
const (
	withoutCNI = "iptables -D FORWARD -i cni0 -j ACCEPT; iptables -D FORWARD -o cni0 -j ACCEPT\n"
	rejectRest = "iptables -P FORWARD ACCEPT; iptables -A FORWARD -j REJECT --reject-with icmp-host-prohibited\n"
	docker     = `iptables -P FORWARD DROP
iptables -N DOCKER-USER; iptables -A DOCKER-USER -j RETURN
iptables -N DOCKER-FORWARD; iptables -A DOCKER-FORWARD -i docker0 -j ACCEPT
iptables -I FORWARD -j DOCKER-FORWARD; iptables -I FORWARD -j DOCKER-USER
`
)

// ufw returns the rules of ufw with a default for routed packets.
func ufw(routed string) string {
	return `for c in ufw-before-forward ufw-after-forward ufw-reject-forward ufw-user-forward; do iptables -N $c; done
for c in ufw-before-forward ufw-after-forward ufw-reject-forward; do iptables -A FORWARD -j $c; done
iptables -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -A ufw-before-forward -p icmp -m icmp --icmp-type 8 -j ACCEPT
iptables -A ufw-before-forward -j ufw-user-forward
iptables -P FORWARD ACCEPT
` + routed
}

// attempt opens a connection, sends words both ways, and returns how far it got.
func attempt(from *nstest.NS, to string, server *nstest.NS, listen string) (result string) {
	var l net.Listener
	var err error
	server.Do(func() { l, err = net.Listen("tcp4", listen) })
	if err != nil {
		return err.Error()
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	var c net.Conn
	from.Do(func() { c, err = net.DialTimeout("tcp4", to, 5*time.Second) })
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	var s net.Conn
	select {
	case s = <-accepted:
	case <-time.After(5 * time.Second):
		return "the server sees no connection"
	}
	defer s.Close()
	_ = s.SetDeadline(time.Now().Add(10 * time.Second))
	text := strings.Repeat("word", 5000) // several packets
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		go io.WriteString(way[0], text) // an error makes the other end wait in vain
		if _, err := io.ReadFull(way[1], make([]byte, len(text))); err != nil {
			return "after the connection was opened: " + err.Error()
		}
	}
	return "works"
}

// The same with a global network, where pods with an address of their own are clients and servers.
func TestForwardingGlobal(t *testing.T) {
	for _, policy := range []string{"ACCEPT", "DROP"} {
		t.Run(policy, func(t *testing.T) {
			fabric := newFabric(t)
			east := globalSide(t, fabric, 1, "east", 2, "gw", "gw2", "worker")
			west := globalSide(t, fabric, 2, "west", 2, "gw", "gw2", "worker")
			ownRoutes(west)
			for _, s := range []*side{east, west} {
				for _, node := range s.names {
					s.own(node)
					s.nodes[node].Run("iptables -P FORWARD " + policy)
				}
				s.answer(t)
			}
			east.sync(t, west)
			west.sync(t, east)
			for _, way := range [][2]*side{{east, west}, {west, east}} {
				from := way[0]
				to := way[1]
				targets := map[string]string{to.serviceIP() + ":80": "tcp4", to.serviceIP() + ":53": "udp4"}
				for _, node := range to.names {
					targets[to.ownIP(node)+":8080"] = "tcp4"
					targets[to.ownIP(node)+":5353"] = "udp4"
				}
				var failed []string
				for at, network := range targets {
					for _, node := range from.names {
						for range 3 {
							if _, _, err := inquire(from.pods[node], network, at); err != nil {
								failed = append(failed,
									fmt.Sprintf("%s %s to %s %s: %v", from.id, node, network, at, err))
							}
						}
					}
				}
				slices.Sort(failed)
				require.Empty(t, failed)
			}
		})
	}
}

// Rules that the node applies to its own pods, and network policies among them, come before what we
// accept: for the pods of a gateway, and of a worker, also for packets that belong to no
// connection.
func TestForwardingKeepsPolicies(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	ownRoutes(west)
	for _, node := range west.names {
		west.nodes[node].Run("iptables -N cali-FORWARD; iptables -I FORWARD -j cali-FORWARD; iptables -A " +
			"cali-FORWARD -o cali+ -p tcp --dport 8081 -j DROP")
	}
	east.sync(t, west)
	west.sync(t, east)
	for _, node := range west.names {
		for _, from := range east.names {
			at := west.podIP(node)
			require.Equal(t, "works", attempt(east.pods[from], at+":8080", west.pods[node], at+":8080"))
			var l net.Listener
			var err error
			west.pods[node].Do(func() { l, err = net.Listen("tcp4", at+":8081") })
			require.NoError(t, err)
			east.pods[from].Do(func() { _, err = net.DialTimeout("tcp4", at+":8081", 200*time.Millisecond) })
			require.ErrorContains(t, err, "i/o timeout", "from %s to the pod on %s", from, node)
			l.Close()
		}
	}
	t.Log("answers to nothing, at a gateway for its own pod")
	invalid := func(gw string) string {
		return strings.TrimSpace(west.nodes[gw].Run("iptables -nvxL KUBE-FORWARD | awk '/INVALID/ {print $1}'"))
	}
	for _, node := range east.names {
		east.nodes[node].Run("iptables -F KUBE-FORWARD")
	}
	synAck := []byte{0, 9, 0x1f, 0x90, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x12, 0xff, 0xff, 0, 0, 0, 0}
	for _, gw := range west.names[:2] {
		require.Equal(t, "0", invalid(gw))
		for _, from := range east.names {
			forge(t, east.pods[from], nstest.IPv4(east.podIP(from), west.podIP(gw), 6, synAck))
		}
		require.Eventually(t, func() bool { return invalid(gw) == "3" }, 5*time.Second, 10*time.Millisecond,
			"each is dropped at gateway %s: %s", gw, invalid(gw))
	}
}
