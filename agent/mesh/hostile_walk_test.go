package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// announcement returns a random Endpoint of a gateway: its own, or one that claims what others
// have, with any marks, drivers and keys.
func announcement(r *rand.Rand, cluster string, n int) *submarinerv1.Endpoint {
	any := func(all ...string) string { return all[r.IntN(len(all))] }
	seldom := func(own string, all ...string) string {
		if r.IntN(10) > 0 {
			return own
		}
		return any(all...)
	}
	net := map[string]int{"north": 113, "south": 114}[cluster]
	e := &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%d", cluster, n), Labels: map[string]string{submarinerv1.ClusterIDLabel: cluster},
	}}
	e.Spec = submarinerv1.EndpointSpec{
		ClusterID:  cluster,
		Hostname:   any("gw", "gw2", "worker", fmt.Sprint("n", n)),
		NATEnabled: r.IntN(4) == 0,
		CableName: seldom(fmt.Sprintf("submariner-cable-%s-%d", cluster, n), westCable, "gateway/gw2",
			west2Cable+" over vxlan-tunnel"),
		PrivateIP: seldom(fmt.Sprintf("10.89.%d.%d", net, 10+n), "11.89.2.11", "11.89.2.12", "10.89.2.11", "10.89.1.11",
			"12.89.1.13"),
		PublicIP:      seldom("", "198.51.100.7", "10.89.2.12", "10.112.0.9"),
		HealthCheckIP: seldom(fmt.Sprintf("10.%d.0.1", net), "", "10.112.2.1"),
		Subnets: []string{
			fmt.Sprintf("10.%d.0.0/16", net),
		},
		Backend: seldom("vxlan", "wireguard", "ipsec", "vxlan+wireguard", "none"),
		BackendConfig: map[string]string{
			submarinerv1.BackendDrivers: any(allDrivers, allDrivers, "wireguard", "ipsec,vxlan+ipsec", "vxlan",
				"vxlan+wireguard"),
			"publicKey": seldom(ownKeys[n%len(ownKeys)], "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
				"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", "KPRN9Rlg3kS4KZxvSWCTJ9PS/ZmzgcJB7B5lwPCNNU8=", "x"),
		},
	}
	if r.IntN(10) == 0 {
		e.Spec.Subnets = append(e.Spec.Subnets, any("10.112.7.0/24", "10.111.0.0/16", "10.102.0.0/16", "240.0.0.0/8"))
	}
	for key, values := range map[string][]string{
		submarinerv1.BackendOctets: {
			"89.2.11", "89.2.12", "89.1.11", fmt.Sprintf("7.%d.%d", net, n), fmt.Sprintf("7.7.%d", n), "0.0.0",
		},
		submarinerv1.BackendSiblings: {"true", "false", "true", "false", "maybe"},
		submarinerv1.BackendWeight:   {"1", "2", "50", "99", "100", "101"},
		submarinerv1.BackendDrain: {
			submarinerv1.Draining,
			submarinerv1.Standby,
			submarinerv1.Drained,
			submarinerv1.Standby,
			submarinerv1.Drained,
			"gone",
		},
	} {
		if r.IntN(2) == 0 {
			e.Spec.BackendConfig[key] = any(values...)
		}
	}
	return e
}

// ownKeys are keys that only the attackers announce.
var ownKeys = []string{
	"KPRN9Rlg3kS4KZxvSWCTJ9PS/ZmzgcJB7B5lwPCNNU8=",
	"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
	"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
	"AwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
	"BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
	"BQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
}

// waysOf returns the cables to a cluster, and where packets to its networks go.
func waysOf(p Plan, cluster string, nets ...string) (out []string) {
	for i, c := range p.Installed {
		if c.Cluster == cluster {
			out = append(
				out,
				fmt.Sprintf("%s by %s on %s at %v, idle %v, silent %v, down %v, hop %d", c.Name, c.Driver.Name(),
					c.Device(), c.Address, c.Idle, c.Silent, c.Down, p.Links[i].Hop),
			)
		}
	}
	for _, o := range p.State {
		if route, ok := o.(dataplane.Route); ok && slices.Contains(nets, route.Dst.String()) {
			out = append(out, route.String())
			for _, o := range p.State {
				if g, ok := o.(dataplane.Group); ok && g.ID == route.Group {
					out = append(out, g.String())
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// Two clusters that collude announce whatever they want, with up to 16 gateways each that come, go,
// and answer or not, in each plan. All agents of this cluster have a plan all the time, and what
// they have for another cluster that was here before is what it would be without the two.
func TestHostileWalk(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 12))
		c := crowd{
			policy:   []string{"wireguard", "ipsec", "vxlan", "vxlan+wireguard"}[seed%4],
			siblings: int(seed/4) % 2,
			west:     two(allDrivers),
		}
		if seed%3 == 0 {
			c.west = one(allDrivers)
		}
		s := c.snapshot(t)
		for _, known := range role.List[*submarinerv1.Cluster](s) {
			known.CreationTimestamp = metav1.Unix(1, 0)
		}
		standby := seed%5 == 4
		if standby {
			s.Standing = role.Standing{Active: true, Drain: cable.Standby}
		}
		peaceful := role.Memory{}
		memory := role.Memory{}
		plan := func(s role.Snapshot, from role.Memory) (Plan, role.Memory) {
			t.Helper()
			s.Memory = from
			p, err := PlanGateway(s)
			require.NoError(t, err, "seed %d", seed)
			return p, role.Memory{Using: p.Using, First: p.First, Incumbents: p.Mesh.Accepted.Incumbents}
		}
		healthy := func(p Plan) map[string]role.Health {
			out := map[string]role.Health{}
			for name := range p.Probes.Targets {
				if out[name] = (role.Health{Status: submarinerv1.Connected}); !strings.Contains(name, "west") &&
					r.IntN(2) == 0 {
					out[name] = role.Health{Status: submarinerv1.ConnectionError}
				}
			}
			return out
		}
		var before, now Plan
		for step := range 30 {
			s.Now = s.Now.Add(time.Second)
			quiet := s
			quiet.Health = healthy(before)
			before, peaceful = plan(quiet, peaceful)
			loud := s
			if step > 3 {
				objs := all(s)
				for _, attacker := range []string{"north", "south"} {
					known := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{
						Name:              attacker,
						Labels:            map[string]string{submarinerv1.ClusterIDLabel: attacker},
						CreationTimestamp: metav1.Unix(2, 0),
						Annotations: map[string]string{
							submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet,
						},
					}}
					known.Spec.ClusterID = attacker
					known.Spec.PublicKey = "KPRN9Rlg3kS4KZxvSWCTJ9PS/ZmzgcJB7B5lwPCNNU8="
					objs = append(objs, known)
					for n := range r.IntN(17) {
						objs = append(objs, announcement(r, attacker, n))
					}
				}
				loud = as(role.NewSnapshot(s.Node, objs...), s)
			}
			loud.Health = healthy(now)
			now, memory = plan(loud, memory)
			require.Equal(t, waysOf(before, "west", "10.102.0.0/16", "10.112.0.0/16"),
				waysOf(now, "west", "10.102.0.0/16", "10.112.0.0/16"), "seed %d, step %d", seed, step)
			if step > 3 && !standby {
				require.NotEmpty(t, waysOf(now, "west", "10.112.0.0/16"))
			}
			worker, err := FromReports("worker", all(loud)...)
			require.NoError(t, err)
			worker.PoliciesDigest = s.PoliciesDigest
			worker.Memory = memory
			_, err = PlanRoute(worker)
			require.NoError(t, err, "seed %d, step %d", seed, step)
		}
	}
}
