package agent

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	kernelprobe "subctl/dataplane/kernel/probe"
)

// A node reports what drops the packets of other clusters, which it would forward to its pods:
// table, chain and rule, and what allows them. It does not report what drops packets of single
// pods, and the probe reaches none, and leaves nothing.
func TestForwardingIsProbed(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	file := func(name string) string {
		b, err := os.ReadFile("testdata/firewalls/" + name)
		require.NoError(t, err)
		return "nft -f - <<X\n" + string(b) + "X\n"
	}
	const policy = "iptables -N cali-FORWARD; iptables -I FORWARD -j cali-FORWARD; iptables -A cali-FORWARD -o cni0 " +
		"-j DROP"
	for name, c := range map[string]struct {
		firewall, undo string
		by             dataplane.Dropper
		rule, passes   bool // a rule drops; connections work nevertheless
		unknown        bool
		says           []string
	}{
		"none": {firewall: "true", undo: "true", passes: true},
		"iptables has the policy DROP, and accepts nothing": {
			firewall: "iptables -F FORWARD; iptables -P FORWARD DROP", undo: "iptables -A FORWARD -i cni0 -j ACCEPT",
			passes: true,
		},
		"firewalld": {
			firewall: file("firewalld.nft"), undo: "nft delete table inet firewalld", rule: true,
			by: dataplane.Dropper{Family: "inet", Table: "firewalld", Chain: "filter_FORWARD"},
			says: []string{
				"chain filter_FORWARD in table inet firewalld",
				"firewall-cmd --permanent --zone=trusted --add-interface=vx-submariner",
				"firewall-cmd --permanent --add-port=4800/udp", "firewall-cmd --reload",
			},
		},
		"nftables with policy drop": {
			firewall: file("nftables.nft"), undo: "nft delete table inet filter",
			by: dataplane.Dropper{Family: "inet", Table: "filter", Chain: "forward"},
			says: []string{
				"by the policy of chain forward in table inet filter",
				"nft insert rule inet filter forward iifname vx-submariner counter accept",
			},
		},
		"a rule before routing": {
			firewall: file("prerouting.nft"), undo: "nft delete table ip hardening", rule: true,
			by:   dataplane.Dropper{Family: "ip", Table: "hardening", Chain: "martians"},
			says: []string{"of chain martians in table ip hardening"},
		},
		"a rule of iptables": {
			firewall: "iptables -I FORWARD 1 -i vx-submariner -j DROP",
			undo:     "iptables -D FORWARD -i vx-submariner -j DROP", rule: true,
			by:   dataplane.Dropper{Family: "ip", Table: "filter", Chain: "FORWARD"},
			says: []string{"of chain FORWARD in table ip filter", "iptables -t filter -S FORWARD"},
		},
		"ufw, with a rule of its user": { // one that is added at the end is never reached
			firewall: "iptables -N ufw-user-forward; iptables -I FORWARD -j ufw-user-forward; " +
				"iptables -A ufw-user-forward -i vx-submariner -j DROP",
			undo: "iptables -D FORWARD -j ufw-user-forward; iptables -F ufw-user-forward; iptables -X ufw-user-forward",
			rule: true,
			by:   dataplane.Dropper{Family: "ip", Table: "filter", Chain: "ufw-user-forward"},
			says: []string{"Allow it: ufw route insert 1 allow in on vx-submariner"},
		},
		"network policies": {
			firewall: policy,
			undo:     "iptables -D FORWARD -j cali-FORWARD; iptables -F cali-FORWARD; iptables -X cali-FORWARD",
			unknown:  true,
		},
	} {
		for _, node := range nodeNames {
			t.Run(name+" on "+node, func(t *testing.T) {
				ns := west.nodes[node]
				ns.Run(c.firewall)
				defer ns.Run(c.undo)
				west.sync(t, east)
				route := roles.Route()
				p := west.plans[[2]string{node, route.Name}]
				before := holdings(ns)
				var got dataplane.Forwarded
				var err error
				ns.Do(func() { got, err = kernelprobe.Forwarding(p.Forward, 0) })
				require.NoError(t, err)
				require.Equal(t, before, holdings(ns), "the probe leaves nothing")
				require.Equal(t, !c.unknown, got.Known)
				require.Equal(t, c.rule, got.By.Rule != 0)
				got.By.Rule = 0
				require.Equal(t, c.by, got.By)
				if node == "worker" { // on a gateway, the device of the cable is not the one that is probed
					require.Equal(t, c.passes, east.opens(west, node) == nil)
				}
				mesh.PlanOf(p).Mesh.Snapshot.Forwarded = got
				report := route.Report(mesh.PlanOf(p).Mesh.Snapshot, p, role.Outcome{})
				condition := meta.FindStatusCondition(report.Apply[0].(*submarinerv1.RouteAgent).Status.Conditions,
					role.ConditionPacketsForwarded)
				if c.says == nil {
					require.Nil(t, condition)
					return
				}
				require.NotNil(t, condition)
				require.Equal(t, metav1.ConditionFalse, condition.Status)
				for _, text := range c.says {
					require.Contains(t, condition.Message, text)
				}
				var unchanged dataplane.Forwarded
				ns.Do(func() { unchanged, err = kernelprobe.Forwarding(p.Forward, got.Generation) })
				require.NoError(t, err)
				if _, commands, ok := strings.Cut(condition.Message, "loads its rules: "); ok {
					ns.Run(commands)
					require.NoError(t, east.opens(west, node), "with what the message tells to run")
				}
				require.Equal(t, dataplane.Forwarded{Generation: got.Generation}, unchanged,
					"it does not probe again until rules change")
			})
		}
	}
}

// opens has the pod of the worker open a connection to a pod of another cluster.
func (s *side) opens(to *side, node string) (err error) {
	at := to.podIP(node) + ":8080"
	var l net.Listener
	to.pods[node].Do(func() { l, err = net.Listen("tcp4", at) })
	if err != nil {
		return err
	}
	defer l.Close()
	s.pods["worker"].Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp4", at, 900*time.Millisecond); err == nil { // before SYN is sent again
			c.Close()
		}
	})
	return err
}
