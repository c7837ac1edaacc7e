package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
	"subctl/policy"
)

// side is a cluster of two nodes, gw and worker, each with a pod, made of network
// namespaces: what a lab is to the end-to-end tests, in 100 ms.
type side struct {
	n     int    // 1, 2, …
	lan   string // nodes: 172.18.n, which stands for 172.18.n.0/24
	net   int    // pods 10.11net.0.0/16, Services 10.10net.0.0/16: like n, unless clusters have the same networks
	id    string // cluster ID
	nodes map[string]*nstest.NS
	pods  map[string]*nstest.NS
	// fabric connects the nodes of all clusters.
	fabric *nstest.NS
	// carries is set for a CNI that does not use the nodes' podCIDRs: it carries packets of other
	// clusters from the gateway to the pods of other nodes itself.
	carries bool
	// more is the number of further clusters with which the gateway has cables.
	more int
	// names are the names of the nodes; the first ones are gateways.
	names    []string
	gateways int
	// health is what the probes of a node have found, by node.
	health map[string]map[string]role.Health
	// fresh are the gateways whose cables have not answered yet.
	fresh map[string]bool
	// booted are the gateways whose agents have set up no cables before the test began.
	booted map[string]bool
	// plans are the plans of the last sync, by node and role.
	plans map[[2]string]role.Plan
	// reports are what the gateways report.
	reports []client.Object
	// convert changes what is planned; nil if nothing does.
	convert func(dataplane.State) dataplane.State
	// noNexthops is set for kernels without next hop objects.
	noNexthops bool
	// single is set for a cluster with one active gateway, whose other gateways announce that they
	// are standbys.
	single bool
	// global is the global network, empty if there is none; more are further objects of the
	// cluster, and returned are the allocated IPs of gateways, by node.
	global   string
	objs     []client.Object
	returned map[string][]string
	// annotations are those of nodes, and announced is what gateways add to their Endpoints, by
	// node.
	annotations, announced map[string]map[string]string
	// incumbents are the gateways of other clusters that have been accepted before.
	incumbents []cable.Gateway
}

var nodeNames = []string{"gw", "worker"}

func newSide(t testing.TB, fabric *nstest.NS, n int, id string) *side {
	t.Helper()
	return newSideOf(t, fabric, n, id, 1, nodeNames...)
}

// newSideOf returns a cluster of nodes, the first of which are active gateways.
func newSideOf(t testing.TB, fabric *nstest.NS, n int, id string, gateways int, names ...string) *side {
	t.Helper()
	return newSideWith(t, fabric, n, n, id, gateways, names...)
}

// newSideWith returns a cluster with the pod and Service networks of another number.
func newSideWith(t testing.TB, fabric *nstest.NS, n, net int, id string, gateways int, names ...string) *side {
	t.Helper()
	return newSideIn(t, fabric, n, fmt.Sprintf("172.18.%d", n), net, id, gateways, names...)
}

// newSideIn returns a cluster whose nodes are in another network.
func newSideIn(
	t testing.TB, fabric *nstest.NS, n int, lan string, net int, id string, gateways int, names ...string,
) *side {
	t.Helper()
	nstest.WireGuard(t) // before the first kernel.ReadFacts, which looks for it once
	s := &side{
		n: n, lan: lan, net: net, id: id, fabric: fabric, nodes: map[string]*nstest.NS{},
		pods: map[string]*nstest.NS{}, names: names, gateways: gateways,
		health: map[string]map[string]role.Health{}, plans: map[[2]string]role.Plan{},
	}
	fabric.Run(fmt.Sprintf("ip link add br%[1]d type bridge && ip addr add %[2]s.254/24 dev br%[1]d && ip link set "+
		"br%[1]d up", n, lan))
	for i, name := range names {
		i++
		node := nstest.New(t, id+"-"+name)
		pod := nstest.New(t, id+"-"+name+"-pod")
		s.nodes[name] = node
		s.pods[name] = pod
		nstest.Join(nstest.End{NS: node, Dev: "eth0", Addr: fmt.Sprintf("%s.%d/24", lan, 10+i)}, nstest.End{
			NS: fabric, Dev: fmt.Sprintf("v%d%d", n, i),
		})
		fabric.Run(fmt.Sprintf("ip link set v%d%d master br%d", n, i, n))
		node.Run(fmt.Sprintf("ip route add default via %s.254", lan))
		// as strict as a distribution may be: our devices have to say what they need
		node.Run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1")
		node.Run(kubeProxyForward + "iptables -P FORWARD DROP; iptables -A FORWARD -i cni0 -j ACCEPT; iptables -A " +
			"FORWARD -o cni0 -j ACCEPT")
		// a CNI that masquerades what leaves the cluster
		node.Run(
			fmt.Sprintf("iptables -t nat -A POSTROUTING -s 10.11%[1]d.0.0/16 ! -d 10.11%[1]d.0.0/16 -j MASQUERADE",
				net),
		)
		nstest.Join(nstest.End{NS: node, Dev: "cni0", Addr: fmt.Sprintf("10.11%d.%d.1/24", net, i)},
			nstest.End{NS: pod, Dev: "eth0", Addr: s.podIP(name) + "/24"})
		pod.Run(fmt.Sprintf("ip route add default via 10.11%d.%d.1", net, i))
	}
	for i, name := range names { // host-gw, as simple CNIs do
		for k := range names {
			if k != i {
				s.nodes[name].Run(fmt.Sprintf("ip route add 10.11%d.%d.0/24 via %s.%d", net, k+1, lan, 11+k))
			}
		}
	}
	return s
}

// kubeProxyForward adds the rules that kube-proxy 1.36 has in FORWARD in mode iptables.
const kubeProxyForward = `iptables -N KUBE-FORWARD; iptables -I FORWARD -j KUBE-FORWARD
iptables -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
iptables -A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
iptables -A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
`

// admitInvalid removes kube-proxy's drop of INVALID packets: what should end at our rules must not
// end there.
func (s *side) admitInvalid() {
	for _, ns := range s.nodes {
		ns.Run("iptables -D KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP")
	}
}

func (s *side) podIP(node string) string {
	return fmt.Sprintf("10.11%d.%d.5", s.net, slices.Index(s.names, node)+1)
}

// isGateway reports whether a node is an active gateway.
func (s *side) isGateway(node string) bool { return slices.Contains(s.names[:s.gateways], node) }

// objects is what the cluster's API server holds about itself.
func (s *side) objects() []client.Object {
	objs := []client.Object{&v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SubmarinerName},
		Spec: v1alpha1.SubmarinerSpec{
			ClusterID:                 s.id,
			ClusterCIDR:               fmt.Sprintf("10.11%d.0.0/16", s.net),
			ServiceCIDR:               fmt.Sprintf("10.10%d.0.0/16", s.net),
			GlobalCIDR:                s.global,
			MultiActiveGatewayEnabled: s.gateways > 1 && !s.single,
		},
	}}
	for i, name := range s.names {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: s.annotations[name]}}
		if !s.carries {
			n.Spec.PodCIDR = fmt.Sprintf("10.11%d.%d.0/24", s.net, i+1)
		}
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("%s.%d", s.lan, 11+i)},
		}
		if s.isGateway(name) {
			n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
		}
		objs = append(
			objs,
			n,
			&submarinerv1.RouteAgent{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: submarinerv1.RouteAgentStatus{
				Node: &submarinerv1.NodeFacts{
					PrivateIP: n.Status.Addresses[0].Address,
					Device:    "eth0",
					MTU:       1500,
					PodIP:     fmt.Sprintf("10.11%d.%d.1", s.net, i+1),
				},
			}},
		)
	}
	for _, e := range s.endpoints() {
		objs = append(objs, e)
	}
	return append(append(objs, s.reports...), s.objs...)
}

func (s *side) endpoints() (all []*submarinerv1.Endpoint) {
	for i := range s.gateways {
		all = append(all, s.endpointOf(i))
	}
	return all
}

func (s *side) endpoint() *submarinerv1.Endpoint { return s.endpointOf(0) }

// cableOf returns the name of the cables to gateway number i.
func (s *side) cableOf(i int) string {
	return "submariner-cable-" + s.id + strings.TrimPrefix(s.names[i], "gw")
}

func (s *side) endpointOf(i int) *submarinerv1.Endpoint {
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: s.id + strings.TrimPrefix(s.names[i], "gw")},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: s.id, CableName: s.cableOf(i), Hostname: s.names[i], Backend: "vxlan",
			PrivateIP: fmt.Sprintf("%s.%d", s.lan, 11+i), HealthCheckIP: fmt.Sprintf("10.11%d.%d.1", s.net, i+1),
			BackendConfig: s.announced[s.names[i]],
			Subnets:       []string{fmt.Sprintf("10.10%d.0.0/16", s.net), fmt.Sprintf("10.11%d.0.0/16", s.net)},
			AllocatedIPs:  s.returned[s.names[i]],
		},
	}
	if s.global != "" {
		e.Spec.Subnets = []string{s.global}
		e.Spec.HealthCheckIP = ""
	}
	return e
}

// sync does what the agents of every node do, knowing the given other clusters.
func (s *side) sync(t testing.TB, others ...*side) (changes int) {
	t.Helper()
	s.plans = map[[2]string]role.Plan{}
	for name := range s.nodes {
		for _, r := range roles.OfNodes() {
			changes += s.syncOne(t, name, r, others...)
		}
	}
	return changes
}

// knowing returns what the cluster's API server holds about itself and other clusters, and the
// cables to these, each of which has answered.
func (s *side) knowing(others ...*side) ([]client.Object, map[string]role.Using) {
	objs := s.objects()
	using := map[string]role.Using{}
	for _, o := range others {
		labels := map[string]string{submarinerv1.ClusterIDLabel: o.id}
		for _, e := range o.endpoints() {
			e.Labels = labels
			using[e.Spec.CableName] = role.Using{Cluster: o.id, Driver: "vxlan", Device: "vxlan-tunnel"}
			objs = append(objs, e)
		}
		objs = append(
			objs,
			&submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{
					Name:        o.id,
					Labels:      labels,
					Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
				},
				Spec: submarinerv1.ClusterSpec{ClusterID: o.id},
			},
		)
	}
	for i := range s.more {
		e := remoteCluster(i)
		using[e.Spec.CableName] = role.Using{Cluster: e.Spec.ClusterID, Driver: "vxlan", Device: "vxlan-tunnel"}
		objs = append(
			objs,
			e,
			&submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{
					Name:        e.Spec.ClusterID,
					Labels:      e.Labels,
					Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
				},
				Spec: submarinerv1.ClusterSpec{ClusterID: e.Spec.ClusterID},
			},
		)
	}
	return objs, using
}

// syncOne does what one agent of a node does.
func (s *side) syncOne(t testing.TB, name string, r role.Role, others ...*side) (changes int) {
	t.Helper()
	objs, using := s.knowing(others...)
	s.nodes[name].Do(func() {
		k, err := kernel.ReadFacts()
		require.NoError(t, err)
		snap := role.NewSnapshot(name, objs...)
		k.NoNexthops = s.noNexthops
		members.SetFacts(&snap, k)
		if s.isGateway(name) {
			snap.Standing = active(name)
			snap.Standing.Gateways = s.names[:s.gateways]
			if s.announced[name][submarinerv1.BackendDrain] == submarinerv1.Standby {
				snap.Standing.Drain = cable.Standby
			}
		}
		snap.PodIPMissing = false
		snap.NoCableRule = k.NoCableRule && s.booted[name]
		snap.Health = s.health[name]
		if snap.PoliciesDigest = policy.Digest(nil); !s.fresh[name] {
			snap.Memory.Using = using
		}
		snap.Memory.Incumbents = s.incumbents
		p, err := r.Plan(snap)
		require.NoError(t, err)
		s.plans[[2]string{name, r.Name}] = p
		if s.convert != nil {
			p.State = s.convert(p.State)
		}
		changes += syncNode(t, r.Owner, p.State)
	})
	return changes
}

// isolationDrops returns the packets that the gateway has dropped, by cluster.
func isolationDrops(t testing.TB, s *side) (drops map[string]uint64) {
	t.Helper()
	s.nodes["gw"].Do(func() {
		h, err := kernel.New(dataplane.GatewayOwner)
		require.NoError(t, err)
		defer h.Close()
		drops, err = h.Drops()
		require.NoError(t, err)
	})
	return drops
}

// leave syncs the empty State on every node.
func (s *side) leave(t testing.TB) {
	t.Helper()
	for _, ns := range s.nodes {
		ns.Do(func() {
			for _, o := range dataplane.Owners() {
				syncNode(t, o, dataplane.State{})
			}
		})
	}
}

func syncNode(t testing.TB, o dataplane.Owner, want dataplane.State) int {
	t.Helper()
	h, err := kernel.New(o)
	require.NoError(t, err)
	defer h.Close()
	ops, err := dataplane.Sync(context.Background(), h, want)
	require.NoError(t, err)
	return len(ops)
}

func newFabric(t testing.TB) *nstest.NS {
	t.Helper()
	f := nstest.New(t, "fabric")
	f.Run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0")
	return f
}

// Pods of two clusters reach each other from every node to every node, with their
// own addresses, packets of every size; the second sync does nothing; leaving
// leaves the nodes as they were.
func TestTraffic(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	before := map[*nstest.NS]string{}
	for _, s := range []*side{east, west} {
		for _, ns := range s.nodes {
			before[ns] = holdings(ns)
		}
	}
	_, err := east.pods["worker"].Try("ping -c1 -W1 " + west.podIP("worker"))
	require.Error(t, err, "nothing connects them yet")

	east.sync(t, west)
	west.sync(t, east)
	require.Zero(t, east.sync(t, west)+west.sync(t, east), "the second sync must find nothing to do")

	for _, from := range nodeNames {
		for _, to := range nodeNames {
			t.Run(from+" to "+to, func(t *testing.T) {
				reach(t, east, from, west, to)
				reach(t, west, from, east, to)
			})
		}
	}
	t.Run("from a node's own processes", func(t *testing.T) {
		for i, name := range nodeNames {
			capture := west.pods["worker"].Start(
				"timeout 10 tcpdump -lnc1 -i eth0 icmp and src 10.111." + fmt.Sprint(i+1) + ".1")
			east.nodes[name].Run("ping -c3 -i0.3 -W2 " + west.podIP("worker"))
			capture()
		}
	})
	t.Run("no transit", func(t *testing.T) {
		north := newSide(t, fabric, 3, "north")
		east.sync(t, west, north)
		west.sync(t, east)
		north.sync(t, east)
		reach(t, north, "worker", east, "worker")
		// north's gateway is misled to send west's traffic to east
		north.nodes["gw"].Run("ip route add 10.112.0.0/16 via 241.18.1.11 dev vxlan-tunnel table 170171100")
		_, err := north.pods["gw"].Try("ping -c2 -W1 " + west.podIP("worker"))
		require.Error(t, err)
		require.EqualValues(t, 2, isolationDrops(t, east)["north"],
			"the packets did get to east's gateway, and ended there")
		// nor may a cluster reach the gateway's own network through the cable
		north.nodes["gw"].Run("ip route add 172.18.1.12/32 via 241.18.1.11 dev vxlan-tunnel table 170171100")
		_, err = north.nodes["gw"].Try("ping -c2 -W1 -I 10.113.1.1 172.18.1.12")
		require.Error(t, err)
		require.EqualValues(t, 4, isolationDrops(t, east)["north"])
	})
	t.Run("device deleted by hand", func(t *testing.T) {
		east.nodes["gw"].Run("ip link del vxlan-tunnel")
		east.nodes["worker"].Run("ip link del vx-submariner; iptables -F SUBMARINER-FORWARD; ip rule del pref 150")
		require.NotZero(t, east.sync(t, west))
		reach(t, east, "worker", west, "worker")
	})
	east.leave(t)
	west.leave(t)
	for ns, was := range before {
		require.Equal(t, was, holdings(ns), "node %s", ns.Name)
	}
}

// reach sends packets of every size from a pod of one cluster to one of another. What
// they send fits the cable, whatever they would like.
func reach(t *testing.T, from *side, fromNode string, to *side, toNode string) {
	t.Helper()
	pod := func(s *side, node string) nstest.Host { return nstest.Host{NS: s.pods[node], IP: s.podIP(node)} }
	nstest.Reach(t, pod(from, fromNode), pod(to, toNode), 1500-dataplane.VXLANOverhead)
}

// A pod behind a Service sees the pod that called, and a pod that calls keeps its
// source, although kube-proxy and the CNI translate addresses, by iptables or by
// nftables.
func TestSourcesAreKept(t *testing.T) {
	const service = "10.102.0.10"
	for mode, script := range map[string]string{
		"iptables": `iptables -t nat -N KUBE-SVC
			iptables -t nat -A PREROUTING -j KUBE-SVC
			iptables -t nat -A KUBE-SVC -d ` + service + `/32 -p tcp --dport 80 -j MARK --set-xmark 0x4000/0x4000
			iptables -t nat -A KUBE-SVC -d ` + service + `/32 -p tcp --dport 80 -j DNAT --to-destination %s:8080
			iptables -t nat -I POSTROUTING 1 -m mark --mark 0x4000/0x4000 -j MASQUERADE`,
		"nftables": `nft -f - <<X
			table ip kube-proxy {
				chain services { type nat hook prerouting priority -100
					ip daddr ` + service + ` tcp dport 80 meta mark set meta mark or 0x4000 dnat to %s:8080
				}
				chain masquerading { type nat hook postrouting priority 100
					meta mark & 0x4000 != 0 masquerade
				}
			}
			X`,
	} {
		for _, first := range []string{"kube-proxy first", "subctl first"} {
			t.Run(mode+", "+first, func(t *testing.T) {
				fabric := newFabric(t)
				east := newSide(t, fabric, 1, "east")
				west := newSide(t, fabric, 2, "west")
				east.sync(t, west)
				if first == "subctl first" {
					west.sync(t, east)
				}
				for _, name := range nodeNames {
					gw := west.nodes["gw"]
					gw.Run(strings.ReplaceAll(fmt.Sprintf(script, west.podIP(name)), "\n\t\t\t", "\n"))
					west.sync(t, east)
					for _, from := range nodeNames {
						connect(
							t,
							east.pods[from],
							service+":80",
							west.pods[name],
							west.podIP(name)+":8080",
							func(_, server *net.TCPConn) {
								require.Equal(t, east.podIP(from), server.RemoteAddr().(*net.TCPAddr).IP.String(),
									"from %s to %s", from, name)
							},
						)
					}
					gw.Run("iptables -t nat -F KUBE-SVC 2>/dev/null; nft delete table ip kube-proxy 2>/dev/null; true")
				}
			})
		}
	}
}

// A CNI that masquerades by nftables does not change the sources either.
func TestSourcesAreKeptFromNFTables(t *testing.T) {
	for _, first := range []string{"CNI first", "subctl first"} {
		t.Run(first, func(t *testing.T) {
			fabric := newFabric(t)
			east := newSide(t, fabric, 1, "east")
			west := newSide(t, fabric, 2, "west")
			if first == "subctl first" {
				east.sync(t, west)
			}
			for _, ns := range east.nodes {
				ns.Run("iptables -t nat -D POSTROUTING -s 10.111.0.0/16 ! -d 10.111.0.0/16 -j MASQUERADE")
				ns.Run(
					"nft 'table ip cni { chain masq { type nat hook postrouting priority 100; ip saddr 10.111.0.0/16 ip daddr != 10.111.0.0/16 masquerade; }; }'")
			}
			east.sync(t, west)
			west.sync(t, east)
			for _, from := range nodeNames {
				for _, to := range nodeNames {
					connect(
						t,
						east.pods[from],
						west.podIP(to)+":8080",
						west.pods[to],
						west.podIP(to)+":8080",
						func(_, server *net.TCPConn) {
							require.Equal(t, east.podIP(from), server.RemoteAddr().(*net.TCPAddr).IP.String(),
								"from %s to %s", from, to)
						},
					)
				}
			}
		})
	}
}

// Other clusters do not reach the ports of the agents, on any node, although they reach the address
// of the node in the pod network, on our device or on the CNI's. On our devices this is so even
// while the route agent of the node does not know the cluster: it may be behind the gateway agent,
// or refuse the endpoint because of what its node needs. The pods of the node's own cluster reach
// the ports.
func TestHostileMetricsThroughCable(t *testing.T) {
	for _, how := range []string{"on our devices", "where the CNI carries packets", "while the cluster is not known"} {
		fabric := newFabric(t)
		east := newSide(t, fabric, 1, "east")
		west := newSide(t, fabric, 2, "west")
		if west.carries = how == "where the CNI carries packets"; west.carries {
			west.nodes["worker"].Run("sysctl -qw net.ipv4.conf.eth0.rp_filter=2")
		}
		east.sync(t, west)
		west.sync(t, east)
		for _, node := range nodeNames {
			if how == "while the cluster is not known" {
				west.nodes[node].Run("nft flush set ip submariner-route-antispoof remote16")
			}
		}
		for i, node := range nodeNames {
			ip := fmt.Sprintf("10.112.%d.1", i+1) // see newSide
			for _, from := range nodeNames {
				connect(t, east.pods[from], ip+":8080", west.nodes[node], ip+":8080", func(_, _ *net.TCPConn) {})
			}
			for _, port := range []int{
				dataplane.GatewayMetricsPort, dataplane.GatewayProbePort, dataplane.RouteMetricsPort,
				dataplane.RouteProbePort,
			} {
				at := net.JoinHostPort(ip, fmt.Sprint(port))
				connect(t, west.pods[node], at, west.nodes[node], at, func(_, _ *net.TCPConn) {})
				for _, from := range nodeNames {
					t.Run(fmt.Sprintf("from %s to port %d of %s, %s", from, port, node, how), func(t *testing.T) {
						var l net.Listener
						var err error
						west.nodes[node].Do(func() { l, err = net.Listen("tcp4", at) })
						require.NoError(t, err)
						defer l.Close()
						east.pods[from].Do(func() { _, err = net.DialTimeout("tcp4", at, 200*time.Millisecond) })
						require.Error(t, err)
					})
				}
			}
		}
	}
}

// A connection from another cluster that was opened before the node closed the ports of its agents
// ends.
func TestClosedPortsEndConnections(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	at := fmt.Sprintf("10.112.1.1:%d", dataplane.RouteMetricsPort) // see newSide
	west.nodes["gw"].Run("nft flush chain ip submariner-route-antispoof agent-ports")
	var l net.Listener
	var err error
	west.nodes["gw"].Do(func() { l, err = net.Listen("tcp4", at) })
	require.NoError(t, err)
	defer l.Close()
	var client net.Conn
	east.pods["gw"].Do(func() { client, err = net.DialTimeout("tcp4", at, 5*time.Second) })
	require.NoError(t, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	west.sync(t, east)
	require.Contains(t, west.nodes["gw"].Run("nft list chain ip submariner-route-antispoof agent-ports"), "drop")
	_, err = client.Write([]byte("GET"))
	require.NoError(t, err)
	require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = server.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// Nodes connect to other clusters from any port, also from those of their agents.
func TestNodesConnectFromPortsOfAgents(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	var l net.Listener
	east.pods["worker"].Do(func() {
		var err error
		l, err = net.Listen("tcp4", east.podIP("worker")+":80")
		require.NoError(t, err)
	})
	defer l.Close()
	for i, node := range nodeNames {
		for port := dataplane.GatewayMetricsPort; port <= dataplane.RouteProbePort; port++ {
			t.Run(fmt.Sprintf("from port %d of %s", port, node), func(t *testing.T) {
				d := net.Dialer{
					Timeout:   5 * time.Second,
					LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 112, byte(i+1), 1), Port: port},
				}
				var c net.Conn
				var err error
				west.nodes[node].Do(func() { c, err = d.Dial("tcp4", l.Addr().String()) })
				require.NoError(t, err)
				c.Close()
			})
		}
	}
}

// connect opens a connection to an address, and gives both ends of it to f.
func connect(
	t *testing.T,
	from *nstest.NS,
	to string,
	server *nstest.NS,
	listen string,
	f func(client, server *net.TCPConn),
) {
	t.Helper()
	var l net.Listener
	server.Do(func() {
		var err error
		l, err = net.Listen("tcp4", listen)
		require.NoError(t, err)
	})
	defer l.Close()
	from.Do(func() {
		c, err := net.DialTimeout("tcp4", to, 5*time.Second)
		require.NoError(t, err)
		defer c.Close()
		s, err := l.Accept()
		require.NoError(t, err)
		defer s.Close()
		f(c.(*net.TCPConn), s.(*net.TCPConn))
	})
}

// holdings is all that the kernel of a node holds, without counters.
func holdings(ns *nstest.NS) string {
	return ns.Run(
		"ip -d link; ip -4 addr; ip -4 route show table all; ip rule; ip nexthop; iptables-save | grep ^-; ipset list; nft list tables; bridge fdb; sysctl -a 2>/dev/null | grep -E 'ipv4.conf.*(rp_filter|forwarding)'")
}
