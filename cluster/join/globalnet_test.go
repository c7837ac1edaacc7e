package join_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/cluster/clustertest"
	"subctl/globalnet"
	"subctl/internal/kube"
)

// globalnet enables globalnet on the broker.
func (s *situation) globalnet(entries ...globalnet.Entry) {
	spec := &s.b.Broker.Spec
	spec.GlobalnetEnabled = true
	spec.GlobalnetCIDRRange = "242.0.0.0/8"
	spec.DefaultGlobalnetClusterSize = 65536
	s.b.Global = entries
}

func has(cluster, network string) globalnet.Entry {
	return globalnet.Entry{ClusterID: cluster, Networks: []netip.Prefix{netip.MustParsePrefix(network)}, Account: "uid"}
}

// announces makes a member announce a global network.
func (s *situation) announces(id, network string) {
	clusters := s.b.Members[0].Clusters
	for i := range clusters {
		if clusters[i].Name == id {
			clusters[i].Spec.GlobalCIDR = []string{network}
		}
	}
}

// invite makes the join file one for west, with a global network unless it is empty.
func (s *situation) invite(t *testing.T, network string) {
	t.Helper()
	i := trust.Invitation{
		Key: brokertest.Key(
			"west").Public(),
		Cluster:  "west",
		Gateways: 2,
		Sets:     []string{"default"},
		Serial:   1,
		Expires:  1 << 50,
	}
	if network != "" {
		i.Global = netip.MustParsePrefix(network)
	}
	var err error
	s.file.Invitation, err = s.file.SigningKey.SignInvitation(i)
	require.NoError(t, err)
	s.file.SigningKey = brokertest.Key("west")
	s.b.GlobalKnown = false
}

// Which global network a cluster gets, and that its grant covers that network and no other.
func TestPlanGlobalNetwork(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*testing.T, *situation)
		want   string // empty: none
	}{
		"none without globalnet": {func(*testing.T, *situation) {}, ""},
		"the first free one": {
			func(_ *testing.T, s *situation) { s.globalnet(has("east", "242.0.0.0/16")) },
			"242.1.0.0/16",
		},
		"its own": {
			func(_ *testing.T, s *situation) { s.globalnet(has("east", "242.0.0.0/16"), has("west", "10.9.0.0/20")) },
			"10.9.0.0/20",
		},
		"a size": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.GlobalnetSize = 5000 },
			"242.0.0.0/19",
		},
		"one outside the range": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.GlobalnetCIDR = "168.254.0.0/15" },
			"168.254.0.0/15",
		},
		"none, as it asks": {func(_ *testing.T, s *situation) { s.globalnet(); s.Globalnet = false }, ""},
		"none, as before": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.f.Submariner = joined("west", "hub:6443") },
			"",
		},
		"one, though none before": {func(_ *testing.T, s *situation) {
			s.globalnet()
			s.f.Submariner = joined("west", "hub:6443")
			s.Specified = []string{"globalnet"}
		}, "242.0.0.0/16"},
		"a size, though none before": {func(_ *testing.T, s *situation) {
			s.globalnet()
			s.f.Submariner = joined("west", "hub:6443")
			s.GlobalnetSize = 4096
			s.Specified = []string{"globalnet-cluster-size"}
		}, "242.0.0.0/20"},
		"as before, from what it knows itself": {func(_ *testing.T, s *situation) {
			s.globalnet()
			s.f.Submariner = joined("west", "hub:6443")
			s.f.Submariner.Spec.GlobalCIDR = "242.9.0.0/16"
		}, "242.9.0.0/16"},
		"another one, as another cluster has it now": {func(_ *testing.T, s *situation) {
			s.globalnet(has("east", "242.9.0.0/16"))
			s.f.Submariner = joined("west", "hub:6443")
			s.f.Submariner.Spec.GlobalCIDR = "242.9.0.0/16"
		}, "242.0.0.0/16"},
		"the one of the invitation": {
			func(t *testing.T, s *situation) { s.globalnet(); s.invite(t, "242.3.0.0/16") },
			"242.3.0.0/16",
		},
		"none in the invitation": {func(t *testing.T, s *situation) { s.globalnet(); s.invite(t, "") }, ""},
		"an invitation, and it wants none": {
			func(t *testing.T, s *situation) { s.globalnet(); s.invite(t, "242.3.0.0/16"); s.Globalnet = false },
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := normal()
			test.change(t, s)
			p, err := s.plan()
			require.NoError(t, err)
			require.Equal(t, test.want, p.Submariner.Spec.GlobalCIDR)
			require.Equal(t, "10.111.0.0/16", p.Submariner.Spec.ClusterCIDR)
			granted := []netip.Prefix{netip.MustParsePrefix("10.101.0.0/16"), netip.MustParsePrefix("10.111.0.0/16")}
			if test.want != "" {
				granted = []netip.Prefix{netip.MustParsePrefix(test.want)}
			}
			require.Equal(t, granted, p.Grant.Networks)
		})
	}
}

func TestPlanRefusesGlobalNetworks(t *testing.T) {
	full := globalnet.Record{has("east", "242.0.0.0/9"), has("north", "242.128.0.0/9")}
	for name, test := range map[string]struct {
		change func(*testing.T, *situation)
		err    string
	}{
		"no globalnet, but asked for": {
			func(_ *testing.T, s *situation) { s.Specified = []string{"globalnet"} },
			"the broker has no globalnet: let its administrator run subctl deploy-broker --globalnet, or omit --globalnet, --globalnet-cidr and --globalnet-cluster-size",
		},
		"both flags": {
			func(_ *testing.T, s *situation) {
				s.globalnet()
				s.GlobalnetCIDR = "242.1.0.0/16"
				s.GlobalnetSize = 256
			},
			"--globalnet-cidr and --globalnet-cluster-size both choose the global network: specify one of them",
		},
		"a flag without globalnet": {
			func(_ *testing.T, s *situation) {
				s.globalnet()
				s.GlobalnetSize = 256
				s.Globalnet = false
			},
			"--globalnet=false joins without a global network: omit --globalnet-cidr and --globalnet-cluster-size",
		},
		"not a power of two": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.GlobalnetCIDR = "242.1.0.0/15" },
			`--globalnet-cidr: global network "242.1.0.0/15" does not start at a multiple of its size: did you mean 242.0.0.0/15?`,
		},
		"an empty network": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.Specified = []string{"globalnet-cidr"} },
			`--globalnet-cidr: global network "" is not an IPv4 network: write it like 242.1.0.0/16, whose number of addresses is a power of two`,
		},
		"size 0": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.Specified = []string{"globalnet-cluster-size"} },
			"--globalnet-cluster-size: globalnet cluster size 0 leaves too few addresses: use a power of two of at least 16, such as 65536",
		},
		"taken": {
			func(_ *testing.T, s *situation) {
				s.globalnet(has("east", "242.1.0.0/16"))
				s.GlobalnetCIDR = "242.1.128.0/17"
			},
			`global network 242.1.128.0/17 overlaps 242.1.0.0/16 of cluster "east": choose another one, or omit --globalnet-cidr to get a free one`,
		},
		"taken, by a cluster with the same pod network": {
			func(_ *testing.T, s *situation) {
				s.globalnet(has("east", "242.1.0.0/16"))
				s.member("east", "10.111.0.0/16", "10.102.0.0/16", "")
				s.announces("east", "242.1.0.0/16")
				s.GlobalnetCIDR = "242.1.128.0/17"
			},
			`global network 242.1.128.0/17 overlaps 242.1.0.0/16 of cluster "east": choose another one, or omit --globalnet-cidr to get a free one`,
		},
		"a third one": {
			func(_ *testing.T, s *situation) {
				s.globalnet(globalnet.Entry{
					ClusterID: "west",
					Account:   "uid",
					Networks: []netip.Prefix{
						netip.MustParsePrefix("242.2.0.0/16"),
						netip.MustParsePrefix("242.1.0.0/16"),
					},
				})
				s.GlobalnetCIDR = "242.3.0.0/16"
			},
			`cluster "west" has not finished the change of its global network from 242.1.0.0/16 to 242.2.0.0/16: finish it with subctl join --globalnet-cidr 242.2.0.0/16, ` +
				"or undo it with subctl join --globalnet-cidr 242.1.0.0/16, and change it to 242.3.0.0/16 then",
		},
		"an earlier invitation, or an earlier broker": {
			func(t *testing.T, s *situation) {
				s.globalnet()
				s.invite(t, "242.3.0.0/16")
				s.b.GlobalnetDenied = []kube.Right{
					{
						Verb:      "patch",
						Group:     "rbac.authorization.k8s.io",
						Resource:  "roles",
						Namespace: "b",
						Name:      "cluster-west",
					},
				}
			},
			"the broker at https://hub:6443 does not allow this user to patch roles.rbac.authorization.k8s.io cluster-west in namespace b: " +
				"let the administrator of the broker run this version of subctl deploy-broker, which gives the right to all join files that are not revoked or expired",
		},
		"its own pods": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.GlobalnetCIDR = "10.111.7.0/24" },
			"10.111.7.0/24, the global network of this cluster, overlaps 10.111.0.0/16, the pod network of this cluster: join with another --globalnet-cidr",
		},
		"its nodes": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.GlobalnetCIDR = "10.89.0.0/16" },
			"10.89.1.1, the address of node n1, is in 10.89.0.0/16, the global network of this cluster: join with another --globalnet-cidr\n" +
				"10.89.1.2, the address of node n2, is in 10.89.0.0/16, the global network of this cluster: join with another --globalnet-cidr",
		},
		"a node in the range": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.f.Nodes[0] = clustertest.Node("n1", "242.200.0.1") },
			"242.200.0.1, the address of node n1, is in 242.0.0.0/8, the range of the broker's globalnet: deploy the broker with another --globalnet-cidr-range",
		},
		"pods in the range": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.f.Network.Pods = found("kubeadm", "242.200.0.0/16") },
			"242.200.0.0/16, the pod network of this cluster, overlaps 242.0.0.0/8, the range of the broker's globalnet: deploy the broker with another --globalnet-cidr-range",
		},
		"the range is full": {
			func(_ *testing.T, s *situation) { s.globalnet(full...) },
			"no network of 65536 addresses is free in the range 242.0.0.0/8 of the broker, in which 2 clusters have networks: " +
				"let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range 242.0.0.0/7",
		},
		"another cluster's own pods": {
			func(_ *testing.T, s *situation) {
				s.globalnet()
				s.member("east", "10.112.0.0/16", "10.102.0.0/16", "")
				s.GlobalnetCIDR = "10.112.7.0/24"
			},
			"10.112.7.0/24, the global network of this cluster, overlaps 10.112.0.0/16, the pod network of cluster \"east\": " +
				"clusters that use the same addresses cannot be connected: the other cluster can join again with --globalnet, and then announces a global network instead; " +
				"if they do not, specify the right networks with --clustercidr and --servicecidr\nto join without a cable to the clusters that announce these addresses, add --force",
		},
		"the pods that a cluster without a global network announces": {
			func(_ *testing.T, s *situation) {
				s.globalnet()
				s.member("east", "10.111.0.0/16", "10.102.0.0/16", "")
			},
			"10.111.0.0/16, the pod network of this cluster, overlaps 10.111.0.0/16, the pod network of cluster \"east\": " +
				"clusters that use the same addresses cannot be connected: the other cluster can join again with --globalnet, and then announces a global network instead; " +
				"if they do not, specify the right networks with --clustercidr and --servicecidr\nto join without a cable to the clusters that announce these addresses, add --force",
		},
		"without a global network, the pods of a cluster with one": {
			func(_ *testing.T, s *situation) {
				s.globalnet(has("east", "242.0.0.0/16"))
				s.member("east", "10.111.0.0/16", "10.102.0.0/16", "")
				s.announces("east", "242.0.0.0/16")
				s.Globalnet = false
			},
			"10.111.0.0/16, the pod network of this cluster, overlaps 10.111.0.0/16, the pod network of cluster \"east\": " +
				"clusters that use the same addresses cannot be connected unless both have global networks: join with --globalnet; " +
				"if they do not, specify the right networks with --clustercidr and --servicecidr\nto join without a cable to the clusters that announce these addresses, add --force",
		},
		"an old join file": {
			func(_ *testing.T, s *situation) { s.globalnet(); s.b.GlobalKnown = false },
			"the join file does not let join read which global networks are in use: use a join file created by this version of subctl deploy-broker",
		},
		"not the one of the invitation": {
			func(t *testing.T, s *situation) {
				s.globalnet()
				s.invite(t, "242.3.0.0/16")
				s.GlobalnetCIDR = "242.4.0.0/16"
			},
			"the join file reserves the global network 242.3.0.0/16 for this cluster: omit --globalnet-cidr and --globalnet-cluster-size, or ask the administrator of the broker for another file (subctl invite)",
		},
		"asked for, but not in the invitation": {
			func(t *testing.T, s *situation) { s.globalnet(); s.invite(t, ""); s.Specified = []string{"globalnet"} },
			"the join file reserves no global network for this cluster: ask the administrator of the broker for another file (subctl invite)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := normal()
			test.change(t, s)
			_, err := s.plan()
			require.EqualError(t, err, test.err)
		})
	}
}

// Clusters with global networks may use the same pod and Service networks, and one with its own
// networks may join them if nobody uses those.
func TestPlanWithTheSameNetworks(t *testing.T) {
	s := normal()
	s.globalnet(has("east", "242.0.0.0/16"))
	s.member("east", "10.111.0.0/16", "10.101.0.0/16", "10.89.2.1")
	s.announces("east", "242.0.0.0/16")
	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, "242.1.0.0/16", p.Submariner.Spec.GlobalCIDR)

	s.Globalnet = false
	s.Specified = []string{"globalnet"}
	s.f.Network.Pods = found("kubeadm", "10.113.0.0/16")
	s.f.Network.Services = found("the API", "10.103.0.0/16")
	p, err = s.plan()
	require.NoError(t, err)
	require.Empty(t, p.Submariner.Spec.GlobalCIDR)
}

// A change of the global network must be asked for, and be confirmed if others reach it.
func TestJoiningAgainWithAnotherGlobalNetwork(t *testing.T) {
	for name, test := range map[string]struct {
		was    string
		change func(*situation)
		want   string
	}{
		"as it is": {"242.7.0.0/16", func(*situation) {}, ""},
		"another": {
			"242.7.0.0/16", func(s *situation) {
				s.GlobalnetCIDR = "242.9.0.0/16"
				s.Specified = []string{"globalnet-cidr"}
			},
			"the global network of this cluster changes from 242.7.0.0/16 to 242.9.0.0/16: other clusters can no longer reach its addresses, and pods and Services get new ones; keep it by omitting --globalnet-cidr and --globalnet-cluster-size",
		},
		"a larger one": {"242.7.0.0/16", func(s *situation) {
			s.GlobalnetCIDR = "242.6.0.0/15"
			s.Specified = []string{"globalnet-cidr"}
		}, ""},
		"none": {
			"242.7.0.0/16", func(s *situation) {
				s.Globalnet = false
				s.Specified = []string{"globalnet"}
			},
			"this cluster gives up its global network 242.7.0.0/16: other clusters can no longer reach its addresses, but its pods and Services by the addresses that they have in the cluster (10.111.0.0/16 and 10.101.0.0/16); keep it with --globalnet",
		},
		"the first one": {
			"", func(s *situation) { s.Specified = []string{"globalnet"} },
			"this cluster gets the global network 242.0.0.0/16: other clusters can no longer reach its pods and Services by the addresses that they have in the cluster (10.111.0.0/16 and 10.101.0.0/16), " +
				"but exported Services, and pods with global addresses of their own, by addresses of that network; stay as it is with --globalnet=false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := normal()
			s.globalnet()
			s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
			s.member("west", "10.111.0.0/16", "10.101.0.0/16", "10.89.1.1")
			s.f.Submariner = joined("west", "hub:6443")
			s.f.Submariner.Spec.ClusterCIDR = "10.111.0.0/16"
			s.f.Submariner.Spec.ServiceCIDR = "10.101.0.0/16"
			s.f.Submariner.Spec.GlobalCIDR = test.was
			if test.was != "" {
				s.globalnet(has("west", test.was))
			}
			test.change(s)
			p, err := s.plan()
			require.NoError(t, err)
			if test.want == "" {
				require.NoError(t, p.Refusal())
			} else {
				require.EqualError(t, p.Refusal(), test.want)
			}
		})
	}
}
