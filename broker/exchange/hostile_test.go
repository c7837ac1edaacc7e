package exchange_test

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kubetest"
)

// victim is a cluster, "east", that exchanges objects with a broker. west is an honest member of
// the clustersets default and lab.
type victim struct {
	t      *testing.T
	local  map[string]client.Object // by kind and name
	memory exchange.Memory
	now    time.Time
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	return &victim{t: t, local: map[string]client.Object{}, now: now}
}

// sync exchanges objects with clustersets once, and returns what was refused.
func (v *victim) sync(sets ...exchange.SetSnapshot) (refused []string) {
	v.t.Helper()
	s := exchange.Snapshot{
		ClusterID: "east",
		Namespace: here,
		Sets:      sets,
		Identity:  brokertest.Identity("east"),
		Memory:    v.memory,
		Now:       v.now,
	}
	for _, o := range v.local {
		s.Local = append(s.Local, o)
	}
	writes, refusals, memory := exchange.Plan(exchange.Kinds(), s)
	v.memory, v.now = memory, v.now.Add(time.Second)
	for _, w := range writes {
		switch {
		case w.Set != "":
		case w.Op == exchange.Delete:
			delete(v.local, id(w.Object))
		default:
			v.local[id(w.Object)] = w.Object
		}
	}
	return texts(refusals)
}

// has reports whether the victim has a copy of exactly this version.
func (v *victim) has(o client.Object) bool {
	have := v.local[copyID(o)]
	return have != nil &&
		have.GetAnnotations()[submarinerv1.SignatureAnnotation] == o.GetAnnotations()[submarinerv1.SignatureAnnotation]
}

// copyID returns the id of the copy of an object, from clusterset default.
func copyID(o client.Object) string {
	maker, ok := submarinerv1.OwnerID(o)
	if _, free := o.(*v1alpha1.CablePolicies); free && ok {
		return id(o) + "." + maker + ".default"
	}
	return id(o)
}

// at returns an object as its owner signed it at a time, with a change.
func at[T client.Object](sequence int64, o T, change func(T)) T {
	change(o)
	return brokertest.SignAt(o, "", sequence)
}

func (v *victim) west() (c *submarinerv1.Cluster, e *submarinerv1.Endpoint, p *v1alpha1.CablePolicies) {
	return cluster("x", "west"), endpoint("x", "west", "10-0-0-1"), brokertest.Policy("x", "west", "p")
}

// granted returns the Cluster of west with a grant.
func granted(c *submarinerv1.Cluster, change func(*trust.Grant)) *submarinerv1.Cluster {
	g := brokertest.Grant("west")
	change(&g)
	brokertest.Annotate(c, submarinerv1.GrantAnnotation, brokertest.Granted(g))
	return c
}

// A broker that shows altered or forged versions of an honest member's objects: the copies stay
// as they are, nothing forged is copied, and each is refused by name.
func TestHostileBrokerAlters(t *testing.T) {
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"kind":"Endpoint"}`))
	for name, alter := range map[string]func(
		c *submarinerv1.Cluster,
		e *submarinerv1.Endpoint,
		p *v1alpha1.CablePolicies,
	){
		"the public key of a Cluster": func(
			c *submarinerv1.Cluster,
			_ *submarinerv1.Endpoint,
			_ *v1alpha1.CablePolicies,
		) {
			c.Spec.PublicKey = "forged"
		},
		"the pod networks of a Cluster": func(
			c *submarinerv1.Cluster,
			_ *submarinerv1.Endpoint,
			_ *v1alpha1.CablePolicies,
		) {
			c.Spec.ClusterCIDR = []string{"10.7.0.0/16"}
		},
		"the Service networks": func(c *submarinerv1.Cluster, _ *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			c.Spec.ServiceCIDR = nil
		},
		"the global networks": func(c *submarinerv1.Cluster, _ *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			c.Spec.GlobalCIDR = []string{"242.0.0.0/16"}
		},
		"required encryption": func(c *submarinerv1.Cluster, _ *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			c.Spec.Encryption = "required"
		},
		"a label of a Cluster": func(c *submarinerv1.Cluster, _ *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			c.Labels["env"] = "prod"
		},
		"the address of a gateway": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.PublicIP = "198.51.100.66"
		},
		"the private address": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.PrivateIP = "198.51.100.66"
		},
		"the subnets of a gateway": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.Subnets = []string{"10.3.0.0/16"}
		},
		"the WireGuard key of a gateway": func(
			_ *submarinerv1.Cluster,
			e *submarinerv1.Endpoint,
			_ *v1alpha1.CablePolicies,
		) {
			e.Spec.BackendConfig["publicKey"] = "forged"
		},
		"the driver of a gateway": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.Backend = "ipsec"
		},
		"the hostname": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.Hostname = "other"
		},
		"the health check": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.HealthCheckIP = "10.2.0.9"
		},
		"NAT": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.NATEnabled = true
		},
		"allocated addresses": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Spec.AllocatedIPs = []string{"242.0.0.1"}
		},
		"a policy": func(_ *submarinerv1.Cluster, _ *submarinerv1.Endpoint, p *v1alpha1.CablePolicies) {
			p.ConnectionPolicies[0].CableDriver = "ipsec"
		},
		"an added rule": func(_ *submarinerv1.Cluster, _ *submarinerv1.Endpoint, p *v1alpha1.CablePolicies) {
			p.ConnectionPolicies = append(p.ConnectionPolicies, p.ConnectionPolicies[0])
		},
		"the owner of a policy": func(_ *submarinerv1.Cluster, _ *submarinerv1.Endpoint, p *v1alpha1.CablePolicies) {
			p.Labels[submarinerv1.ClusterIDLabel] = "north"
		},
		"a policy made the broker's": func(
			_ *submarinerv1.Cluster,
			_ *submarinerv1.Endpoint,
			p *v1alpha1.CablePolicies,
		) {
			p.Labels = nil
		},
		"no signature": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Annotations = nil
		},
		"no label": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Labels = nil
		},
		"another's signature": func(c *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			e.Annotations = c.Annotations
		},
		"a signature of the broker's key": func(
			_ *submarinerv1.Cluster,
			e *submarinerv1.Endpoint,
			_ *v1alpha1.CablePolicies,
		) {
			e.Spec.PublicIP = "198.51.100.66"
			forge(e, "broker")
		},
		"a signature of another member": func(
			_ *submarinerv1.Cluster,
			e *submarinerv1.Endpoint,
			_ *v1alpha1.CablePolicies,
		) {
			e.Spec.PublicIP = "198.51.100.66"
			forge(e, "north")
		},
		"a payload of its own": func(_ *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			parts := strings.Split(e.Annotations[submarinerv1.SignatureAnnotation], ".")
			e.Annotations[submarinerv1.SignatureAnnotation] = parts[0] + "." + payload + "." + parts[2]
		},
		"no grant": func(c *submarinerv1.Cluster, _ *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			delete(c.Annotations, submarinerv1.GrantAnnotation)
		},
		"the grant of another": func(c *submarinerv1.Cluster, _ *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			c.Annotations[submarinerv1.GrantAnnotation] = brokertest.Identity("north").Grant
		},
		"a grant of its own": func(c *submarinerv1.Cluster, e *submarinerv1.Endpoint, _ *v1alpha1.CablePolicies) {
			g := brokertest.Grant("west")
			g.Key = brokertest.Key("broker").Public()
			g.Serial = 5000
			token, _ := brokertest.Key("broker").SignGrant(g)
			c.Annotations[submarinerv1.GrantAnnotation] = token
			e.Spec.PublicIP = "198.51.100.66"
			forge(e, "broker")
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			c, e, p := v.west()
			p = inSlot("west.0", p)
			require.Empty(t, v.sync(unsigned("default", c, e, p), unsigned("lab", c, e, p)))
			forgedC := c.DeepCopy()
			forgedE := e.DeepCopy()
			forgedP := p.DeepCopy()
			alter(forgedC, forgedE, forgedP)
			require.NotEmpty(t, v.sync(unsigned("default", forgedC, forgedE, forgedP)), "nothing is refused")
			for _, o := range []client.Object{c, e, p} {
				require.True(t, v.has(o), "the copy of %s is gone", id(o))
			}
			require.Equal(t, e.Spec, v.local[id(e)].(*submarinerv1.Endpoint).Spec)
			copied := v.local[id(c)].(*submarinerv1.Cluster).Spec
			copied.ClusterSets = c.Spec.ClusterSets // see TestHostileClusterSets
			require.Equal(t, c.Spec, copied)
			require.Equal(t, p.ConnectionPolicies, v.local[copyID(p)].(*v1alpha1.CablePolicies).ConnectionPolicies)

			newcomer := newVictim(t)
			newcomer.sync(unsigned("default", forgedC, forgedE, forgedP))
			for _, o := range newcomer.local {
				require.True(
					t,
					newcomer.has(c) && id(o) == id(c) || newcomer.has(e) && id(o) == id(e) ||
						newcomer.has(p) && id(o) == copyID(p),
					"a forged %s was copied",
					id(o),
				)
			}
		})
	}
}

// forge signs an object with a key that is not its owner's.
func forge(o client.Object, by string) {
	if err := exchange.Kinds().Sign(o, brokertest.Key(by), "", 9000); err != nil {
		panic(err)
	}
}

// A broker that shows genuine objects at the wrong place or time.
func TestHostileBrokerReplays(t *testing.T) {
	later := func(e *submarinerv1.Endpoint) { e.Spec.PublicIP = "198.51.100.7" }
	for name, attack := range map[string]func(t *testing.T, v *victim){
		"an older version": func(t *testing.T, v *victim) {
			c, old, _ := v.west()
			newer := at(2000, endpoint("x", "west", "10-0-0-1"), later)
			require.Empty(t, v.sync(unsigned("default", c, newer)))
			require.Contains(t, strings.Join(v.sync(unsigned("default", c, old)), "\n"), "a later one")
			require.True(t, v.has(newer))
		},
		"an older version in one of two clustersets": func(t *testing.T, v *victim) {
			c, old, _ := v.west()
			newer := at(2000, endpoint("x", "west", "10-0-0-1"), later)
			require.Empty(t, v.sync(unsigned("default", c, newer), unsigned("lab", c.DeepCopy(), newer.DeepCopy())))
			v.sync(unsigned("default", c, newer), unsigned("lab", c.DeepCopy(), old))
			require.True(t, v.has(newer))
		},
		"a deleted gateway": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			v.sync(unsigned("default", c, e))
			require.Empty(t, v.sync(unsigned("default", c)))
			require.NotContains(t, v.local, id(e))
			require.Contains(t, strings.Join(v.sync(unsigned("default", c, e)), "\n"), "was deleted before")
			require.NotContains(t, v.local, id(e))
			again := at(2000, endpoint("x", "west", "10-0-0-1"), later)
			require.Empty(t, v.sync(unsigned("default", c, again)))
			require.True(t, v.has(again), "its cluster may make it again")
		},
		"a deleted policy": func(t *testing.T, v *victim) {
			c, _, p := v.west()
			v.sync(unsigned("default", c, p))
			v.sync(unsigned("default", c))
			require.NotEmpty(t, v.sync(unsigned("default", c, p)))
			require.NotContains(t, v.local, copyID(p))
		},
		"a deleted policy of the administrator": func(t *testing.T, v *victim) {
			p := brokertest.Sign(cablePolicy("default", "vxlan"), "default")
			require.Empty(t, v.sync(unsigned("default", p)))
			require.Empty(t, v.sync(unsigned("default")))
			require.NotEmpty(t, v.sync(unsigned("default", p)))
			require.NotContains(t, v.local, copyID(p))
		},
		"a policy that was adopted since": func(t *testing.T, v *victim) {
			c, _, p := v.west()
			v.sync(unsigned("default", c, p))
			adopted := cablePolicy("p", "ipsec")
			brokertest.SignAt(adopted, "default", 2000)
			require.Empty(t, v.sync(unsigned("default", c, adopted)))
			require.NotEmpty(t, v.sync(unsigned("default", c, adopted, inSlot("west.0", p))))
			require.True(t, v.has(adopted))
			require.NotContains(t, v.local, copyID(p))
		},
		"an older grant": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			newer := granted(cluster("x", "west"), func(g *trust.Grant) {
				g.Serial = 3000
				g.Gateways = 1
			})
			require.Empty(t, v.sync(unsigned("default", newer, e)))
			require.Contains(t, strings.Join(v.sync(unsigned("default", c, e)), "\n"), "a later one")
			require.Equal(t, trust.Bare(newer.Annotations[submarinerv1.GrantAnnotation]),
				v.local[id(c)].GetAnnotations()[submarinerv1.GrantAnnotation])
		},
		"an older grant after the Cluster was gone": func(t *testing.T, v *victim) {
			c, _, _ := v.west()
			newer := granted(at(2000, cluster("x", "west"), func(*submarinerv1.Cluster) {}),
				func(g *trust.Grant) { g.Serial = 3000 })
			v.sync(unsigned("default", newer))
			v.sync(unsigned("default"))
			require.NotEmpty(t, v.sync(unsigned("default", at(4000, c, func(*submarinerv1.Cluster) {}))))
			require.NotContains(t, v.local, id(c))
		},
		"a revoked cluster": func(t *testing.T, v *victim) {
			c, e, p := v.west()
			v.sync(unsigned("default", c, e, p))
			require.Empty(t, v.sync(unsigned("default", revoked(2000))))
			require.Empty(t, v.local, "a revoked cluster has copies")
			v.sync(unsigned("default", c, e, p))
			require.Empty(t, v.local, "the broker brings a revoked cluster back")
			back := granted(at(4000, cluster("x", "west"), func(*submarinerv1.Cluster) {}),
				func(g *trust.Grant) { g.Serial = 4000 })
			require.Empty(t, v.sync(unsigned("default", back)))
			require.True(t, v.has(back), "it may join again")
		},
		"an object that is for another clusterset": func(t *testing.T, v *victim) {
			c, _, p := v.west()
			brokertest.Sign(p, "lab")
			require.NotEmpty(t, v.sync(unsigned("default", c, p)))
			require.NotContains(t, v.local, copyID(p))
		},
		"a policy of the administrator for another clusterset": func(t *testing.T, v *victim) {
			p := brokertest.Sign(cablePolicy("default", "vxlan"), "lab")
			require.NotEmpty(t, v.sync(unsigned("default", p)))
			require.NotContains(t, v.local, copyID(p))
		},
		"an administrator's policy, altered": func(t *testing.T, v *victim) {
			p := brokertest.Sign(cablePolicy("default", "ipsec"), "default")
			require.Empty(t, v.sync(unsigned("default", p)))
			forged := p.DeepCopy()
			forged.ConnectionPolicies[0].CableDriver = "vxlan"
			require.NotEmpty(t, v.sync(unsigned("default", forged)))
			require.True(t, v.has(p))
			require.Equal(t, "ipsec", v.local[copyID(p)].(*v1alpha1.CablePolicies).ConnectionPolicies[0].CableDriver)
		},
		"a damaged version, to keep a network that is not granted any more": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			v.sync(unsigned("default", c, e))
			narrow := granted(at(2000, cluster("x", "west"), func(c *submarinerv1.Cluster) {
				c.Spec.ClusterCIDR = nil
				c.Spec.ServiceCIDR = nil
			}),
				func(g *trust.Grant) {
					g.Serial = 2000
					g.Networks = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
				})
			damaged := e.DeepCopy()
			damaged.Annotations = nil
			require.NotEmpty(t, v.sync(unsigned("default", narrow, damaged)))
			require.NotContains(t, v.local, id(e))
		},
		"a damaged version, to keep a cluster in a clusterset": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			v.sync(unsigned("default", c, e))
			left := granted(cluster("x", "west"), func(g *trust.Grant) {
				g.Serial = 2000
				g.Sets = []string{"lab"}
			})
			damaged := e.DeepCopy()
			damaged.Spec.ClusterID = "north"
			require.NotEmpty(t, v.sync(unsigned("default", left, damaged)))
			require.NotContains(t, v.local, id(e))
		},
		"what was signed with a key that was replaced": func(t *testing.T, v *victim) {
			c, e, p := v.west()
			v.sync(unsigned("default", c, e, p))
			renewed := granted(cluster("x", "west"), func(g *trust.Grant) {
				g.Serial = 2000
				g.Key = brokertest.Key("west-2").Public()
			})
			require.NotEmpty(t, v.sync(unsigned("default", renewed, e, p)))
			require.NotContains(t, v.local, id(e))
			require.NotContains(t, v.local, copyID(p))
		},
		"a cluster in a clusterset that it is not in": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			granted(c, func(g *trust.Grant) { g.Sets = []string{"lab"} })
			require.NotEmpty(t, v.sync(unsigned("default", c, e)))
			require.Empty(t, v.local)
		},
		"a revocation of its own": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			v.sync(unsigned("default", c, e))
			token, _ := brokertest.Key("broker").SignRevocation(trust.Revocation{Cluster: "west", Serial: 9000})
			require.NotEmpty(t, v.sync(unsigned("default", exchange.Revoked("x", "west", token), e)))
			require.True(t, v.has(c) && v.has(e))
		},
		"the revocation of another cluster": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			v.sync(unsigned("default", c, e))
			token, _ := brokertest.Administrator().SignRevocation(trust.Revocation{Cluster: "north", Serial: 9000})
			require.NotEmpty(t, v.sync(unsigned("default", exchange.Revoked("x", "west", token), e)))
			require.True(t, v.has(c) && v.has(e))
		},
		"an object under another name": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			e.Name = "west-submariner-cable-west-10-0-0-9"
			e.Spec.CableName = "submariner-cable-west-10-0-0-9"
			require.NotEmpty(t, v.sync(unsigned("default", c, e)))
			require.NotContains(t, v.local, id(e))
		},
		"only a part": func(t *testing.T, v *victim) {
			_, e, p := v.west()
			require.NotEmpty(t, v.sync(unsigned("default", e, p)), "objects without the Cluster")
			require.Empty(t, v.local)
		},
	} {
		t.Run(name, func(t *testing.T) { attack(t, newVictim(t)) })
	}
}

// revoked returns the Cluster of west after it was revoked.
func revoked(serial int64) client.Object {
	token, err := brokertest.Administrator().SignRevocation(trust.Revocation{Cluster: "west", Serial: serial})
	if err != nil {
		panic(err)
	}
	return exchange.Revoked("x", "west", token)
}

// left returns the Cluster of west after it has left with a grant.
func left(change func(*trust.Grant)) *submarinerv1.Cluster {
	token, err := brokertest.Key(
		"west").SignLeaving(granted(cluster("x", "west"), change).Annotations[submarinerv1.GrantAnnotation], 5000)
	if err != nil {
		panic(err)
	}
	return exchange.Left("x", "west", token)
}

// What a cluster has left with is void, and stays so. Nobody else can make a cluster leave, neither
// with a statement of its own, nor with one that the cluster made before it joined again.
func TestHostileLeaving(t *testing.T) {
	same := func(*trust.Grant) {}
	serial := func(serial int64, key string) func(*trust.Grant) {
		return func(g *trust.Grant) {
			g.Serial = serial
			g.Key = brokertest.Key(key).Public()
		}
	}
	// back returns the Cluster of west as it is published after a later join, with a new key.
	back := func() *submarinerv1.Cluster {
		c := cluster("x", "west")
		require.NoError(t, exchange.Kinds().Sign(c, brokertest.Key("west-2"), "", 4000))
		return granted(c, serial(4000, "west-2"))
	}
	by := func(signer trust.Key, grant string) *submarinerv1.Cluster {
		token, err := signer.SignLeaving(grant, 5000)
		require.NoError(t, err)
		return exchange.Left("x", "west", token)
	}
	grantOf := func(id string) string { return brokertest.Granted(brokertest.Grant(id)) }
	for name, attack := range map[string]func(t *testing.T, v *victim){
		"the broker brings it back, to a cluster that has copies": func(t *testing.T, v *victim) {
			c, e, p := v.west()
			v.sync(unsigned("default", c, e, p))
			require.Empty(t, v.sync(unsigned("default", left(same))))
			require.Empty(t, v.local)
			require.Contains(t, strings.Join(v.sync(unsigned("default", c, e, p)), "\n"), "cluster west has left")
			require.Empty(t, v.local)
		},
		"the broker brings it back, to a cluster that joined later": func(t *testing.T, v *victim) {
			c, e, p := v.west()
			require.Empty(t, v.sync(unsigned("default", left(same))))
			require.NotEmpty(t, v.sync(unsigned("default", c, e, p)))
			require.Empty(t, v.local)
		},
		"the broker shows it in another clusterset": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			v.sync(unsigned("default", c, e), unsigned("lab", c, e))
			require.NotEmpty(t, v.sync(unsigned("default", left(same)), unsigned("lab", c, e)))
			require.Empty(t, v.local)
		},
		"its key signs new versions, with an older grant": func(t *testing.T, v *victim) {
			require.Empty(t, v.sync(unsigned("default", left(serial(3000, "west")))))
			c := at(9000, cluster("x", "west"), func(*submarinerv1.Cluster) {})
			require.NotEmpty(
				t,
				v.sync(unsigned("default", c,
					at(9000, endpoint("x", "west", "10-0-0-1"), func(*submarinerv1.Endpoint) {}))),
			)
			require.Empty(t, v.local)
		},
		"an invited cluster, with a grant of the same invitation": func(t *testing.T, v *victim) {
			c := invited(t, "hostile", 1000, 900_000, 5000)
			require.Empty(t, v.sync(unsigned("default", c)))
			token, err := brokertest.Key("hostile").SignLeaving(c.Annotations[submarinerv1.GrantAnnotation], 1)
			require.NoError(t, err)
			require.Empty(t, v.sync(unsigned("default", exchange.Left("x", "west", token))))
			v.sync(unsigned("default", invited(t, "hostile", 1000, 900_000, 4999)))
			require.Empty(t, v.local, "an earlier grant")
			again := invited(t, "west", 1000, 900_000, 5001)
			require.Empty(t, v.sync(unsigned("default", again)))
			require.True(t, v.has(again), "the invitation is not used up")
		},
		"a statement from before the cluster joined again": func(t *testing.T, v *victim) {
			v.sync(unsigned("default", left(same)))
			require.Empty(t, v.sync(unsigned("default", back())))
			require.True(t, v.has(back()), "it may join again")
			v.sync(unsigned("default", left(same)))
			v.sync(unsigned("default", back()), unsigned("lab", left(same)))
			require.True(t, v.has(back()))
			require.Empty(t, v.memory.Clusters["west"].Left)
		},
		"a statement from before, to a cluster that knows only the later grant": func(t *testing.T, v *victim) {
			v.sync(unsigned("default", back()), unsigned("lab", left(same)))
			require.True(t, v.has(back()))
			require.NotEmpty(t, v.sync(unsigned("default", left(same)), unsigned("lab")))
			require.True(t, v.has(back()), "what is refused leaves the copy as it is")
		},
		"signed by another member": func(t *testing.T, v *victim) {
			v.stands(by(brokertest.Key("north"), grantOf("west")))
		},
		"of another member": func(t *testing.T, v *victim) {
			v.stands(by(brokertest.Key("north"), grantOf("north")))
		},
		"signed by the broker": func(t *testing.T, v *victim) {
			v.stands(by(brokertest.Key("broker"), grantOf("west")))
		},
		"with a grant of its own making": func(t *testing.T, v *victim) {
			g := brokertest.Grant("west")
			g.Key = brokertest.Key("broker").Public()
			forged, err := brokertest.Key("broker").SignGrant(g)
			require.NoError(t, err)
			v.stands(by(brokertest.Key("broker"), forged))
		},
		"of a key that the cluster had before": func(t *testing.T, v *victim) {
			grant := granted(cluster("x", "west"), serial(500, "west-0")).Annotations[submarinerv1.GrantAnnotation]
			v.stands(by(brokertest.Key("west-0"), grant))
		},
		"more than the bounds": func(t *testing.T, v *victim) {
			v.stands(by(brokertest.Key("west"), strings.Repeat("x", 30<<10)))
		},
		"a revocation in its place": func(t *testing.T, v *victim) {
			c := revoked(2000).(*submarinerv1.Cluster)
			v.stands(exchange.Left("x", "west", c.Annotations[submarinerv1.RevocationAnnotation]))
		},
		"its grant in its place": func(t *testing.T, v *victim) {
			v.stands(exchange.Left("x", "west", grantOf("west")))
		},
		"under another's name": func(t *testing.T, v *victim) {
			c, e, p := v.west()
			v.sync(unsigned("default", c, e, p))
			token, err := brokertest.Key("north").SignLeaving(grantOf("north"), 5000)
			require.NoError(t, err)
			on := c.DeepCopy()
			brokertest.Annotate(on, submarinerv1.LeavingAnnotation, token)
			v.sync(unsigned("default", on, e, p))
			require.True(t, v.has(c) && v.has(e) && v.has(p))
		},
	} {
		t.Run(name, func(t *testing.T) { attack(t, newVictim(t)) })
	}
}

// stands checks that a Cluster which states that west has left changes nothing, whether the broker
// shows it in place of the Cluster of west or in another clusterset.
func (v *victim) stands(forged *submarinerv1.Cluster) {
	v.t.Helper()
	c, e, p := v.west()
	v.sync(unsigned("default", c, e, p))
	require.NotEmpty(v.t, v.sync(unsigned("default", forged, e, p)))
	v.sync(unsigned("default", c, e, p), unsigned("lab", forged))
	require.True(v.t, v.has(c) && v.has(e) && v.has(p))
	require.Zero(v.t, v.memory.Clusters["west"].Left)
}

// A gateway that still runs does not undo what uninstall has published, whoever made it: its own
// Cluster is not published any more, and is when the cluster has a new grant.
func TestLeavingIsNotUndone(t *testing.T) {
	own := cluster("x", "west")
	e := endpoint("x", "west", "10-0-0-1")
	plan := func(local []client.Object, identity exchange.Identity, on ...client.Object) []exchange.Write {
		writes, _, _ := exchange.Plan(exchange.Kinds(), exchange.Snapshot{
			ClusterID: "west",
			Namespace: here,
			Local:     local,
			Identity:  identity,
			Now:       now,
			Sets:      []exchange.SetSnapshot{unsigned("default", on...)},
		})
		return writes
	}
	local := []client.Object{
		&submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west", Namespace: here}, Spec: own.Spec},
		&submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: e.Name, Namespace: here}, Spec: e.Spec},
		&v1alpha1.CablePolicies{
			ObjectMeta:         metav1.ObjectMeta{Name: "p", Namespace: here},
			ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "vxlan"}},
		},
	}
	gone := left(func(*trust.Grant) {})
	require.Empty(t, plan(local, brokertest.Identity("west"), gone, e), "while its objects are here")
	require.Empty(t, plan(nil, brokertest.Identity("west"), gone, e), "when they are gone")
	forged := exchange.Left("x", "west", "a.b.c")
	require.NotEmpty(t, plan(local, brokertest.Identity("west"), forged), "what the cluster has not signed is replaced")

	g := brokertest.Grant("west")
	g.Serial = 9000
	g.Key = brokertest.Key("west-2").Public()
	again := exchange.Identity{
		Key:           brokertest.Key("west-2"),
		Grant:         brokertest.Granted(g),
		Administrator: brokertest.Administrator().Public(),
	}
	writes := plan(local, again, gone)
	require.Contains(t, fmt.Sprint(writes), "update Cluster west on the broker in clusterset default")
	for _, w := range writes {
		if c, ok := w.Object.(*submarinerv1.Cluster); ok {
			require.NotContains(t, c.Annotations, submarinerv1.LeavingAnnotation)
		}
	}
}

// A broker that hides objects from one cluster only, and shows them again, or that was restored
// from a backup, cannot cut them off for ever: their owner signs them again.
func TestHostileBrokerHidesObjectsOnce(t *testing.T) {
	v := newVictim(t)
	c, e, p := v.west()
	v.sync(unsigned("default", c, e, p))
	v.sync(unsigned("default"))
	require.NotEmpty(t, v.sync(unsigned("default", c, e, p)))
	require.Empty(t, v.local)

	local := map[string]client.Object{}
	for _, o := range []client.Object{c, e, p} {
		o = o.DeepCopyObject().(client.Object)
		o.SetNamespace(here)
		o.SetAnnotations(nil)
		o.SetLabels(nil)
		local[id(o)] = o
	}
	brokertest.PublishIn(c, "default")
	on := unsigned("default", c, e, p)
	renewed := func(after time.Duration) (ids []string) {
		s := exchange.Snapshot{
			ClusterID: "west", Namespace: here, Identity: brokertest.Identity("west"), Sets: []exchange.SetSnapshot{on},
			Now: time.UnixMilli(brokertest.Sequence).Add(after),
		}
		for _, o := range local {
			s.Local = append(s.Local, o)
		}
		writes, _, _ := exchange.Plan(exchange.Kinds(), s)
		for _, w := range writes {
			if w.Set == "default" {
				ids = append(ids, id(w.Object))
				for i, o := range on.Objects {
					if id(o) == id(w.Object) {
						on.Objects[i] = w.Object
					}
				}
			}
		}
		return ids
	}
	require.Empty(t, renewed(45*time.Minute))
	require.Equal(t, []string{id(c)}, renewed(2*time.Hour))
	require.ElementsMatch(t, []string{id(c), id(e), id(p)}, renewed(30*time.Hour))
	require.Empty(t, v.sync(on))
	require.Len(t, v.local, 3)
}

// A member that signs more than it was granted.
func TestHostileMemberExceedsItsGrant(t *testing.T) {
	narrow := func(g *trust.Grant) {
		g.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}
		g.Gateways = 2
	}
	subnets := func(s ...string) func(*submarinerv1.Endpoint) {
		return func(e *submarinerv1.Endpoint) { e.Spec.Subnets = append(e.Spec.Subnets, s...) }
	}
	for name, object := range map[string]client.Object{
		"a public address":     at(1000, endpoint("x", "west", "10-0-0-1"), subnets("1.1.1.1/32")),
		"everything":           at(1000, endpoint("x", "west", "10-0-0-1"), subnets("0.0.0.0/0")),
		"a network of another": at(1000, endpoint("x", "west", "10-0-0-1"), subnets("10.3.0.0/16")),
		"a larger network":     at(1000, endpoint("x", "west", "10-0-0-1"), subnets("10.2.0.0/15")),
		"an IPv6 network":      at(1000, endpoint("x", "west", "10-0-0-1"), subnets("::/0")),
		"garbage":              at(1000, endpoint("x", "west", "10-0-0-1"), subnets("garbage")),
		"an allocated address": at(1000, endpoint("x", "west",
			"10-0-0-1"), func(e *submarinerv1.Endpoint) { e.Spec.AllocatedIPs = []string{"1.1.1.1"} }),
		"a policy of the broker": func() client.Object { p := cablePolicy("p", "vxlan"); forge(p, "west"); return p }(),
		"a policy of another": func() client.Object {
			p := of("north", cablePolicy("p", "vxlan"))
			forge(p, "west")
			return p
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			member := granted(cluster("x", "west"), narrow)
			refused := v.sync(unsigned("default", member, cluster("x", "north"), object))
			require.Len(t, refused, 1)
			require.Contains(t, refused[0], object.GetName())
			require.NotContains(t, v.local, id(object))
		})
	}
	t.Run("a Cluster with a public network", func(t *testing.T) {
		v := newVictim(t)
		c := granted(
			at(1000, cluster("x", "west"),
				func(c *submarinerv1.Cluster) { c.Spec.ClusterCIDR = []string{"8.8.8.0/24"} }),
			narrow,
		)
		require.NotEmpty(t, v.sync(unsigned("default", c)))
		require.Empty(t, v.local)
	})
	t.Run("more gateways", func(t *testing.T) {
		v := newVictim(t)
		member := granted(cluster("x", "west"), narrow)
		gateway := func(last string) client.Object { return endpoint("x", "west", "10-0-0-"+last) }
		require.Empty(t, v.sync(unsigned("default", member, gateway("5"), gateway("6"))))
		require.Len(t, v.sync(unsigned("default", member, gateway("1"), gateway("5"), gateway("6"), gateway("7"))), 2)
		require.True(t, v.has(gateway("5")) && v.has(gateway("6")), "the gateways in use change")
		require.Len(t, v.local, 3)
	})
	t.Run("gateways after a smaller grant", func(t *testing.T) {
		v := newVictim(t)
		gateway := func(last string) client.Object { return endpoint("x", "west", "10-0-0-"+last) }
		v.sync(unsigned("default", cluster("x", "west"), gateway("5"), gateway("6"), gateway("7")))
		smaller := granted(cluster("x", "west"), func(g *trust.Grant) { narrow(g); g.Serial = 2000 })
		require.Len(t, v.sync(unsigned("default", smaller, gateway("5"), gateway("6"), gateway("7"))), 1)
		require.Len(t, v.local, 3)
	})
}

// Who is invited signs its grant with any serial until the invitation expires, such as the last
// one, and its objects with any sequence number. A revocation and a new invitation stay final
// nevertheless: the cluster that joins next with the ID is not cut off, and the grant of the
// earlier invitation never returns.
func TestHostileInviteeDatesItsGrantLater(t *testing.T) {
	const expires = 900_000
	hostile := func() *submarinerv1.Cluster { return invited(t, "hostile", 1000, expires, expires) }
	honest := func() *submarinerv1.Cluster {
		return granted(at(4000, cluster("x", "west"), func(*submarinerv1.Cluster) {}),
			func(g *trust.Grant) { g.Serial = 4000 })
	}
	again := func() *submarinerv1.Cluster { return invited(t, "honest", 4000, 5000, 4001) }
	for name, replaced := range map[string]func() *submarinerv1.Cluster{
		"by a grant of the administrator": honest,
		"by an invitation":                again,
	} {
		t.Run(name, func(t *testing.T) {
			next := replaced()
			replaced := func() *submarinerv1.Cluster { return next.DeepCopy() }
			v := newVictim(t)
			require.Empty(t, v.sync(unsigned("default", hostile())))
			require.True(t, v.has(hostile()))
			require.Empty(t, v.sync(unsigned("default", revoked(3000))))
			require.Empty(t, v.sync(unsigned("default", replaced())), "the cluster that joins next is cut off")
			require.NotEmpty(t, v.sync(unsigned("default", hostile())))
			want := replaced()
			want.Annotations[submarinerv1.GrantAnnotation] = trust.Bare(want.Annotations[submarinerv1.GrantAnnotation])
			require.Equal(t, want.Annotations, proofsOf(v.local[id(want)]))

			late := newVictim(t) // it did not see the revocation
			late.sync(unsigned("default", hostile()))
			require.Empty(t, late.sync(unsigned("default", replaced())), "the cluster that joins next is cut off")
			late.sync(unsigned("default"))
			require.NotEmpty(t, late.sync(unsigned("default", hostile())), "the earlier grant is back")
			require.Empty(t, late.local)
		})
	}
}

// proofsOf returns the annotations of a copy that its owner has set.
func proofsOf(copy client.Object) map[string]string {
	out := map[string]string{}
	for _, name := range exchange.Proofs() {
		if text, ok := copy.GetAnnotations()[name]; ok {
			out[name] = text
		}
	}
	return out
}

// invited returns the Cluster of west with the key of a name, and with a grant that was signed with
// an invitation of serial from until expires. serial is the serial of the grant, and the sequence
// number of the Cluster.
func invited(t *testing.T, name string, from, expires, serial int64) *submarinerv1.Cluster {
	t.Helper()
	key := brokertest.Key("invitee")
	invitation, err := brokertest.Administrator().SignInvitation(trust.Invitation{
		Key:      key.Public(),
		Cluster:  "west",
		Gateways: 9,
		Sets:     []string{"default", "lab"},
		Serial:   from,
		Expires:  expires,
	})
	require.NoError(t, err)
	g := brokertest.Grant("west")
	g.Gateways = 1
	g.Sets = []string{"default"}
	g.Serial = serial
	g.Key = brokertest.Key(name).Public()
	token, err := key.SignInvitedGrant(g, invitation)
	require.NoError(t, err)
	c := cluster("x", "west")
	require.NoError(t, exchange.Kinds().Sign(c, brokertest.Key(name), "", serial))
	brokertest.Annotate(c, submarinerv1.GrantAnnotation, token)
	return c
}

// A member that stores much in each of two clustersets has what is in the first one copied, until
// it stores less.
func TestHostileStorerInTwoClusterSets(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server, "a", "b")
	gate := kubetest.NewGate(t, server)
	hub := newSite(t, d, gate, "hub", "a", "b")
	west := newSite(t, d, gate, "west", "a", "b")
	hub.config.Kinds = exchange.Kinds()
	for i := range hub.config.Kinds {
		if _, ok := hub.config.Kinds[i].Object.(*v1alpha1.CablePolicies); ok {
			hub.config.Kinds[i].Quota = 1 // 40 KiB
		}
	}
	hub.watched = 1 // a, the first by name
	large := &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	for i := range 60 {
		large.ConnectionPolicies = append(large.ConnectionPolicies, v1alpha1.CablePolicySpec{
			CableDriver: "wireguard",
			LeftClusterSelector: v1alpha1.ClusterSelector{
				MatchLabels: map[string]string{fmt.Sprintf("l%d", i): strings.Repeat("x", 60)},
			},
		})
	}
	west.create(large)
	for _, s := range []*site{hub, west} {
		s.create(brokertest.Cluster("", s.id))
		s.start()
		t.Cleanup(func() { s.stop() })
	}
	copies := func(want ...string) func() bool {
		return func() bool {
			var list v1alpha1.CablePoliciesList
			require.NoError(t, hub.client.List(t.Context(), &list, client.InNamespace(hub.ns)))
			var names []string
			for _, p := range list.Items {
				names = append(names, p.Name)
			}
			slices.Sort(names)
			return slices.Equal(want, names)
		}
	}
	brokertest.Eventually(t, copies("large.west.a"))
	brokertest.Eventually(t, func() bool {
		return slices.ContainsFunc(hub.ex.Status().Refused, func(r exchange.Refusal) bool {
			return strings.Contains(r.Reason,
				"cluster west has more in all its clustersets together than is copied of it")
		})
	})
	hub.eventuallyKnows(map[string][]string{"west": {"a", "b"}})
	require.True(t, copies("large.west.a")())

	key := client.ObjectKeyFromObject(large)
	require.NoError(t, west.client.Get(t.Context(), key, large))
	large.ConnectionPolicies = large.ConnectionPolicies[:20]
	require.NoError(t, west.client.Update(t.Context(), large))
	brokertest.Eventually(t, copies("large.west.a", "large.west.b"))
}
