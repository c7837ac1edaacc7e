package plan

import (
	"net/netip"
	"testing"
)

func TestAddressesNeverMeet(t *testing.T) {
	seen := []netip.Prefix{FabricCIDR}
	for c := 1; c <= MaxClusters; c++ {
		cluster := Cluster{Number: c, Nodes: MaxNodes, ProxyMode: "iptables"}
		if err := cluster.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, p := range []netip.Prefix{cluster.Pods(), cluster.Services()} {
			for _, q := range seen {
				if p.Overlaps(q) {
					t.Errorf("%s of %s overlaps %s", p, cluster.Name(), q)
				}
			}
			seen = append(seen, p)
		}
		used := map[netip.Addr]string{cluster.Gateway().Addr(): "gateway"}
		for _, port := range cluster.Ports() {
			addr := port.Addr.Addr()
			if other, ok := used[addr]; ok || !FabricCIDR.Contains(addr) {
				t.Errorf("%s has %s, like %q", port.Name, addr, other)
			}
			used[addr] = port.Name
			if len(port.Link) > 15 {
				t.Errorf("%s is too long for a link", port.Link)
			}
		}
		for _, n := range cluster.Members() {
			if !cluster.Pods().Overlaps(n.Pods()) {
				t.Errorf("pods of %s (%s) outside %s", n.Name(), n.Pods(), cluster.Pods())
			}
		}
	}
}

func TestOverlappingClustersShareCIDRs(t *testing.T) {
	a := Cluster{Number: 1, Overlapping: true}
	b := Cluster{Number: 2, Overlapping: true}
	if a.Pods() != b.Pods() || a.Services() != b.Services() {
		t.Errorf("%s %s, %s %s", a.Pods(), b.Pods(), a.Services(), b.Services())
	}
	if a.API().Addr == b.API().Addr {
		t.Errorf("both API servers have %s", a.API().Addr)
	}
}

func TestPlanIsWhatTheReadmeSays(t *testing.T) {
	c := Cluster{Number: 2, Nodes: 2}
	n := c.Members()[1]
	for _, x := range [][2]string{
		{n.Name(), "cluster2-node2"},
		{n.Addr().String(), "10.100.2.12/24"},
		{n.Pods().String(), "10.112.2.0/24"},
		{n.Netns(), "subctl-lab-cluster2-node2"},
		{c.Services().String(), "10.102.0.0/16"},
		{c.Server(), "https://10.100.2.1:6443"},
		{c.DNS().String(), "10.102.0.10"},
	} {
		if x[0] != x[1] {
			t.Errorf("got %s, want %s", x[0], x[1])
		}
	}
}

func TestCNI(t *testing.T) {
	c := Cluster{Number: 1, Nodes: 1, ProxyMode: "nftables", CNI: FlannelHostGW}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if got, want := c.FlannelConfig(), `{"Network": "10.111.0.0/16", "EnableNFTables": true, "Backend": {"Type": "host-gw"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c.CNI = "flannel-udp"
	if err := c.Validate(); err == nil {
		t.Error("flannel-udp is accepted")
	}
	for _, cni := range []string{"", PTP} {
		if c.CNI = cni; c.Flannel() != "" || c.Validate() != nil {
			t.Errorf("CNI %q: backend %q, %v", cni, c.Flannel(), c.Validate())
		}
	}
}

func TestCuts(t *testing.T) {
	clusters := []Cluster{{Number: 1, Nodes: 2}, {Number: 2, Nodes: 1}}
	resolve := func(name string) []Port {
		ports, err := Resolve(clusters, name)
		if err != nil {
			t.Fatal(err)
		}
		return ports
	}
	got := Between(resolve("cluster1-node1"), resolve("cluster2-api"))
	want := []Cut{{"c1n1", "10.100.2.1"}, {"c2", "10.100.1.11"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	// One against the four others and the host, both ways; a cluster of three against two others
	// and the host.
	if n := len(Alone(clusters, resolve("cluster1-node1"))); n != 10 {
		t.Errorf("a node alone takes %d cuts", n)
	}
	if n := len(Alone(clusters, resolve("cluster1"))); n != 18 {
		t.Errorf("a cluster alone takes %d cuts", n)
	}
	if left := Without(Alone(clusters, resolve("cluster1-node1")), got); len(left) != 8 {
		t.Errorf("%d cuts left", len(left))
	}
	if left := Heal(Between(resolve("cluster1"), resolve("cluster1")), resolve("cluster1-node1")); len(left) != 2 {
		t.Errorf("%v left when all of a node's paths are healed, want those between the API server and the other node",
			left)
	}
	if _, err := Resolve(clusters, "cluster3"); err == nil {
		t.Error("cluster3 resolved")
	}
}
