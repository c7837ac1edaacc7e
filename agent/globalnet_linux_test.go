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
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/nstest"
)

// globalSide returns a cluster whose pod networks are those of number 9, like those of all other
// such clusters. Its global network is 242.n.0.0/16: 242.n.1.x is an egress address of gateway
// number x, 242.n.2.x the own address of the pod on node number x, and 242.n.3.1 that of a Service
// with TCP port 80 and UDP port 53, whose endpoints are ports 8080 and 5353 of all pods.
func globalSide(t testing.TB, fabric *nstest.NS, n int, id string, gateways int, names ...string) *side {
	s := newSideWith(t, fabric, n, 9, id, gateways, names...)
	s.global = fmt.Sprintf("242.%d.0.0/16", n)
	s.returned = map[string][]string{}
	egress := func(name string, i int) {
		e := &submarinerv1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: name}}
		e.Status.AllocatedIPs = []string{s.egressIP(i)}
		s.objs = append(s.objs, e)
	}
	if gateways == 1 {
		egress(submarinerv1.ClusterEgress, 0)
	} else {
		for i, name := range names[:gateways] {
			egress(name+submarinerv1.GatewayEgressSuffix, i)
			s.returned[name] = []string{s.egressIP(i)}
		}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "web-1",
			Namespace: "default",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{
				Name: new("http"),
				Port: new(int32(8080)),
			}, {Name: new("dns"), Port: new(int32(5353)), Protocol: new(corev1.ProtocolUDP)},
		},
	}
	for _, name := range names {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Status:     corev1.PodStatus{PodIP: s.podIP(name)},
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{s.podIP(name)}})
		s.objs = append(s.objs, pod)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	service.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Port: 80},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
	}
	export := &submarinerv1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	export.Spec.Target = submarinerv1.TargetClusterIPService
	export.Spec.ServiceRef = &corev1.LocalObjectReference{
		Name: "web",
	}
	export.Status.AllocatedIP = s.serviceIP()
	s.objs = append(s.objs, slice, service, export)
	return s
}

func (s *side) egressIP(gateway int) string { return fmt.Sprintf("242.%d.1.%d", s.n, gateway+1) }
func (s *side) ownIP(node string) string {
	return fmt.Sprintf("242.%d.2.%s", s.n, strings.Split(s.podIP(node), ".")[2])
}
func (s *side) serviceIP() string { return fmt.Sprintf("242.%d.3.1", s.n) }

// own gives the pod of a node an address of its own.
func (s *side) own(node string) {
	i := &submarinerv1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + node, Namespace: "default"}}
	i.Spec.Target = submarinerv1.TargetHeadlessServicePod
	i.Spec.PodRef = &corev1.LocalObjectReference{
		Name: node,
	}
	i.Status.AllocatedIP = s.ownIP(node)
	s.objs = append(s.objs, i)
}

// answer starts servers at TCP port 8080 and UDP port 5353 of all pods. They answer with the node
// and the client's address.
func (s *side) answer(t testing.TB) {
	t.Helper()
	for name, pod := range s.pods {
		pod.Do(func() {
			l, err := net.Listen("tcp4", ":8080")
			require.NoError(t, err)
			u, err := net.ListenPacket("udp4", ":5353")
			require.NoError(t, err)
			t.Cleanup(func() { l.Close(); u.Close() })
			said := func(a net.Addr) []byte {
				host, _, _ := net.SplitHostPort(a.String())
				return []byte(name + " " + host)
			}
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						_, _ = c.Write(said(c.RemoteAddr())) // the client sees that it is missing
						_, _ = io.Copy(c, c)
					}()
				}
			}()
			go func() {
				b := make([]byte, 2000)
				for {
					_, from, err := u.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = u.WriteTo(said(from), from)
				}
			}()
		})
	}
}

// inquire sends from a namespace to an address and port, and returns what the answer says: the
// node, and the address of the client.
func inquire(from *nstest.NS, network, to string) (node, client string, err error) {
	from.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout(network, to, 3*time.Second); err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		if _, err = c.Write([]byte("x")); err != nil {
			return
		}
		b := make([]byte, 100)
		var n int
		if n, err = c.Read(b); err == nil {
			node, client, _ = strings.Cut(strings.TrimSuffix(string(b[:n]), "x"), " ")
		}
	})
	return node, client, err
}

// everySize sends packets of every size to an address, and a stream that the server sends back.
func everySize(t testing.TB, from *nstest.NS, to string) {
	t.Helper()
	for _, size := range []int{0, 56, 1372, 1422, 1423, 1472, 1473, 4000, 30000} {
		from.Run(fmt.Sprintf("ping -Mdont -c1 -W5 -s%d %s", size, to))
	}
	var c net.Conn
	from.Do(func() {
		var err error
		c, err = net.DialTimeout("tcp4", to+":8080", 5*time.Second)
		require.NoError(t, err)
	})
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	const size = 1 << 20
	go func() { _, _ = c.Write(make([]byte, size)) }() // the reader sees what is missing
	n, err := io.CopyN(io.Discard, c, size)
	require.NoError(t, err, "after %d bytes", n)
}

// Two clusters with the same networks reach exported Services and pods with an address of their
// own, from every node, pods and nodes alike, and see the global address of the client. Nothing
// else is reached.
func TestGlobalnet(t *testing.T) {
	fabric := newFabric(t)
	east := globalSide(t, fabric, 1, "east", 1, nodeNames...)
	west := globalSide(t, fabric, 2, "west", 1, nodeNames...)
	before := map[*nstest.NS][]string{}
	for _, s := range []*side{east, west} {
		s.own("worker")
		s.answer(t)
		for _, ns := range s.nodes {
			before[ns] = strings.Split(holdings(ns), "\n")
		}
	}
	sync := func() int { return east.sync(t, west) + west.sync(t, east) }
	sync()
	require.Zero(t, sync(), "the second sync must find nothing to do")
	t.Run("Services", func(t *testing.T) {
		for port, network := range map[string]string{":80": "tcp4", ":53": "udp4"} {
			seen := map[string]int{}
			for _, from := range nodeNames {
				client := map[string]string{"gw": east.egressIP(0), "worker": east.ownIP("worker")}[from]
				for range 25 {
					node, source, err := inquire(east.pods[from], network, west.serviceIP()+port)
					require.NoError(t, err, "%s from %s", network, from)
					require.Equal(t, client, source)
					seen[node]++
				}
				_, source, err := inquire(east.nodes[from], network, west.serviceIP()+port)
				require.NoError(t, err, "from the processes of node %s", from)
				require.Equal(t, east.egressIP(0), source)
			}
			require.Greater(t, seen["gw"], 5, "%v", seen)
			require.Greater(t, seen["worker"], 5, "%v", seen)
		}
	})
	t.Run("own addresses", func(t *testing.T) {
		for _, from := range nodeNames {
			for port, network := range map[string]string{":8080": "tcp4", ":5353": "udp4"} {
				node, _, err := inquire(east.pods[from], network, west.ownIP("worker")+port)
				require.NoError(t, err)
				require.Equal(t, "worker", node)
			}
		}
		everySize(t, east.pods["worker"], west.ownIP("worker"))
	})
	t.Run("errors", func(t *testing.T) {
		// west's pod rejects: the error arrives, although nobody listens, and names addresses that
		// east knows
		for _, to := range []string{west.ownIP("worker") + ":9", west.serviceIP() + ":53"} {
			west.pods["worker"].Run(
				"iptables -I INPUT -p udp --dport 5353 -j REJECT --reject-with icmp-port-unreachable")
			west.pods["gw"].Run("iptables -I INPUT -p udp --dport 5353 -j REJECT --reject-with icmp-port-unreachable")
			for _, from := range nodeNames {
				_, _, err := inquire(east.pods[from], "udp4", to)
				require.ErrorContains(t, err, "connection refused", "from %s to %s", from, to)
			}
			west.pods["worker"].Run("iptables -F INPUT")
			west.pods["gw"].Run("iptables -F INPUT")
		}
	})
	t.Run("path MTU", func(t *testing.T) {
		west.nodes["worker"].Run("ip link set cni0 mtu 1000")
		for _, from := range nodeNames {
			pod := east.pods[from]
			pod.Run("ip route flush cache; ping -c2 -W1 -s 1200 -M do " + west.ownIP("worker") + " || true")
			require.Contains(t, pod.Run("ip route get "+west.ownIP("worker")), "mtu 1000",
				"from %s: the error of west's worker names the global address", from)
		}
		west.nodes["worker"].Run("ip link set cni0 mtu 1500")
	})
	t.Run("what is not exported", func(t *testing.T) {
		drops := isolationDrops(t, west)["east"]
		for _, to := range []string{"242.2.9.9:80", west.serviceIP() + ":81", west.egressIP(0) + ":8080"} {
			_, _, err := inquire(east.pods["worker"], "udp4", to)
			require.Error(t, err, to)
		}
		_, err := east.pods["worker"].Try("ping -c1 -W1 " + west.serviceIP())
		require.Error(t, err)
		require.EqualValues(t, drops+4, isolationDrops(t, west)["east"])
		for _, entry := range flows(t, west.nodes["gw"]) {
			require.NotEqual(t, "242.2.9.9", entry.Forward.DstIP.String(), "%v", entry)
		}
	})
	t.Run("connections without endpoints, and without an export", func(t *testing.T) {
		var c net.Conn
		east.pods["worker"].Do(func() {
			var err error
			c, err = net.DialTimeout("tcp4", west.serviceIP()+":80", 3*time.Second)
			require.NoError(t, err)
		})
		defer c.Close()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Second)))
		_, err := c.Read(make([]byte, 100)) // what the server says first
		require.NoError(t, err)
		answers := func() error {
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Second)))
			_, err = c.Read(make([]byte, 100))
			return err
		}
		require.NoError(t, answers())
		all := slices.Clone(west.objs)
		without := func(is func(client.Object) bool) {
			west.objs = slices.DeleteFunc(slices.Clone(all), is)
			sync()
			_, _, err := inquire(east.pods["worker"], "tcp4", west.serviceIP()+":80")
			require.Error(t, err, "a new connection")
		}
		without(func(o client.Object) bool { _, is := o.(*discoveryv1.EndpointSlice); return is })
		require.NoError(t, answers(), "no endpoint is ready: connections go on, as with kube-proxy")
		drops := isolationDrops(t, west)["east"]
		without(func(o client.Object) bool { i, is := o.(*submarinerv1.GlobalIngressIP); return is && i.Name == "web" })
		require.Error(t, answers(), "the Service is not exported any more: the connection ends")
		require.Greater(t, isolationDrops(t, west)["east"], drops+1)
		west.objs = all
		sync()
		_, _, err = inquire(east.pods["worker"], "tcp4", west.serviceIP()+":80")
		require.NoError(t, err)
	})
	t.Run("health", func(t *testing.T) {
		require.Equal(t, west.egressIP(0),
			mesh.PlanOf(west.plans[[2]string{"gw", "gateway"}]).Mesh.Offer.Local.HealthIP.String())
		east.nodes["gw"].Run("ping -c2 -i0.2 -W2 " + west.egressIP(0))
		east.pods["worker"].Run("ping -c2 -i0.2 -W2 " + west.egressIP(0))
	})
	east.leave(t)
	west.leave(t)
	for ns, was := range before {
		require.ElementsMatch(t, was, strings.Split(holdings(ns), "\n"), "node %s", ns.Name)
	}
}

// The agents start again and again, while objects change, and no packet is lost.
func TestGlobalnetRestarts(t *testing.T) {
	fabric := newFabric(t)
	east := globalSide(t, fabric, 1, "east", 1, nodeNames...)
	west := globalSide(t, fabric, 2, "west", 1, nodeNames...)
	west.own("worker")
	west.answer(t)
	east.sync(t, west)
	west.sync(t, east)
	_, _, err := inquire(east.pods["worker"], "tcp4", west.serviceIP()+":80")
	require.NoError(t, err)
	ended := east.pods["worker"].Ping(100, west.ownIP("worker"))
	fixed := len(west.objs)
	for i := range 20 {
		if west.objs = west.objs[:fixed]; i%2 == 0 {
			west.own("gw")
		}
		west.sync(t, east)
		east.sync(t, west)
	}
	sent, lost := ended()
	require.Greater(t, sent, 20)
	require.Zero(t, lost)
}

// With two active gateways on both sides, every gateway translates for a pod with an address of its
// own, replies to shared addresses find the gateway that has translated, and what a gateway leaves
// behind is taken over by the other.
func TestGlobalnetSeveralGateways(t *testing.T) {
	fabric := newFabric(t)
	east := globalSide(t, fabric, 1, "east", 2, "gw", "gw2", "worker")
	west := globalSide(t, fabric, 2, "west", 2, "gw", "gw2", "worker")
	for _, s := range []*side{east, west} {
		s.own("worker")
		s.answer(t)
	}
	sync := func() int { return east.sync(t, west) + west.sync(t, east) }
	sync()
	require.Zero(t, sync())
	clients := map[string]int{}
	for _, from := range east.names {
		for range 20 {
			node, client, err := inquire(east.pods[from], "tcp4", west.serviceIP()+":80")
			require.NoError(t, err, "from %s", from)
			require.NotEmpty(t, node)
			clients[client]++
			_, _, err = inquire(east.pods[from], "udp4", west.ownIP("worker")+":5353")
			require.NoError(t, err, "from %s", from)
		}
	}
	for _, client := range []string{east.egressIP(0), east.egressIP(1), east.ownIP("worker")} {
		require.NotZero(t, clients[client], "%v", clients)
	}
	require.Len(t, clients, 3)
	everySize(t, east.pods["worker"], west.ownIP("worker"))
	t.Log("an open connection continues through the other gateways")
	for _, to := range []string{west.serviceIP() + ":80", west.ownIP("worker") + ":8080"} {
		for _, lost := range []int{0, 1} {
			var c net.Conn
			b := make([]byte, 100)
			for node := ""; !strings.HasPrefix(node, "worker "); { // a pod on a gateway is lost with it
				east.pods["worker"].Do(func() {
					var err error
					c, err = net.DialTimeout("tcp4", to, 3*time.Second)
					require.NoError(t, err)
				})
				defer c.Close()
				n, err := c.Read(b)
				require.NoError(t, err)
				node = string(b[:n])
			}
			down := role.Health{Status: submarinerv1.ConnectionError}
			for _, s := range []*side{east, west} {
				other := map[*side]*side{east: west, west: east}[s]
				s.health = map[string]map[string]role.Health{
					s.names[1-lost]: {other.cableOf(lost) + " over vxlan-tunnel": down},
					"worker":        {"gateway/" + s.names[lost]: down},
				}
			}
			sync()
			for range 5 {
				_, err := c.Write([]byte("x"))
				require.NoError(t, err)
				require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
				_, err = c.Read(b)
				require.NoError(t, err, "to %s without gateway %d", to, lost)
			}
			east.health = map[string]map[string]role.Health{}
			west.health = map[string]map[string]role.Health{}
			sync()
		}
	}
}

// A gateway loses its cables, and not its node. The connections that it has translated, of pods on
// its own node and on a worker, go on through the other gateway, and go on when the cables are
// back. What other clusters send to such an address, and is no answer, reaches no pod.
func TestGlobalnetLostCables(t *testing.T) {
	fabric := newFabric(t)
	east := globalSide(t, fabric, 1, "east", 2, "gw", "gw2", "worker")
	west := globalSide(t, fabric, 2, "west", 2, "gw", "gw2", "worker")
	west.own("worker")
	for _, s := range []*side{east, west} {
		s.answer(t)
	}
	sync := func() int { return east.sync(t, west) + west.sync(t, east) }
	sync()
	conns := map[string]net.Conn{}
	speak := func(c net.Conn) (string, error) {
		b := make([]byte, 100)
		if _, err := c.Write([]byte("x")); err != nil {
			return "", err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		n, err := c.Read(b)
		return string(b[:n]), err
	}
	for _, from := range []string{"gw", "worker"} {
		for port, network := range map[string]string{":8080": "tcp4", ":5353": "udp4"} {
			for range 100 {
				var c net.Conn
				east.pods[from].Do(func() {
					var err error
					c, err = net.DialTimeout(network, west.ownIP("worker")+port, 3*time.Second)
					require.NoError(t, err)
				})
				t.Cleanup(func() { c.Close() })
				said, err := speak(c)
				require.NoError(t, err, "%s from %s", network, from)
				if strings.HasPrefix(said, "worker "+east.egressIP(0)) {
					conns[network+" from "+from] = c
					break
				}
			}
		}
	}
	require.Len(t, conns, 4, "connections through the first gateway")
	goOn := func(t *testing.T) {
		for name, c := range conns {
			for range 5 {
				said, err := speak(c)
				require.NoError(t, err, name)
				if strings.HasPrefix(name, "udp") {
					require.Equal(t, "worker "+east.egressIP(0), said, "the server sees the same client")
				}
			}
		}
	}
	cut := func() {
		down := role.Health{Status: submarinerv1.ConnectionError}
		east.nodes["gw"].Run(
			"ip route add blackhole 172.18.2.0/24; nft 'add table ip cut; add chain ip cut in { type filter hook prerouting priority -400; }; add rule ip cut in ip saddr 172.18.2.0/24 drop'")
		east.health["gw"] = map[string]role.Health{}
		for i, name := range west.names[:2] {
			east.health["gw"][west.cableOf(i)+" over vxlan-tunnel"] = down
			west.health[name] = map[string]role.Health{east.cableOf(0) + " over vxlan-tunnel": down}
		}
		east.reports = []client.Object{east.working("gw2", west)}
		sync()
		require.Zero(t, sync())
	}
	heal := func() {
		east.nodes["gw"].Run("ip route del blackhole 172.18.2.0/24; nft delete table ip cut")
		east.health = map[string]map[string]role.Health{}
		west.health = map[string]map[string]role.Health{}
		east.reports = nil
		sync()
	}
	goOn(t)
	for _, turn := range []string{"once", "again"} {
		cut()
		t.Run("cut "+turn, goOn)
		t.Run("what is no answer", func(t *testing.T) {
			for _, name := range east.names[:2] {
				east.nodes[name].Run(
					"nft 'add table ip seen; add chain ip seen out { type filter hook postrouting priority 400; }; add rule ip seen out ip daddr " +
						east.egressIP(0) + " counter'",
				)
			}
			for port, network := range map[string]string{":8080": "tcp4", ":5353": "udp4"} {
				_, _, err := inquire(west.pods["worker"], network, east.egressIP(0)+port)
				require.Error(t, err)
			}
			require.Contains(t, east.nodes["gw2"].Run("nft list table ip seen"), "packets 0",
				"the other gateway hands over answers only")
			t.Log("the gateway forwards nothing that it has not translated, whatever the other one hands over")
			east.nodes["gw"].Run("iptables -P FORWARD ACCEPT")
			device := strings.Fields(east.nodes["gw"].Run("ip -4 -o addr show dev vx-submariner scope global"))[3]
			via, _, _ := strings.Cut(device, "/")
			east.nodes["gw2"].Run(
				"ip route add " + east.egressIP(
					0) + "/32 via " + via + " dev vx-submariner onlink; ping -c2 -i0.2 -W1 " + east.egressIP(0) +
					" || true",
			)
			require.Contains(t, east.nodes["gw2"].Run("nft list table ip seen"), "packets 2", "it has sent them")
			require.Contains(t, east.nodes["gw"].Run("nft list table ip seen"), "packets 0")
			east.nodes["gw"].Run("iptables -P FORWARD DROP")
			east.nodes["gw2"].Run("ip route del " + east.egressIP(0) + "/32")
			for _, name := range east.names[:2] {
				east.nodes[name].Run("nft delete table ip seen")
			}
		})
		heal()
		t.Run("healed "+turn, goOn)
	}
	east.leave(t)
	west.leave(t)
}
