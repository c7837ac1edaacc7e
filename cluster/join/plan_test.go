package join_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/cable/drivers"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/join"
	"subctl/cluster/networks"
	"subctl/internal/kube"
	"subctl/policy/catalog"
)

// situation is what MakePlan looks at; the zero changes make a plan that works.
type situation struct {
	join.Options
	file *broker.JoinFile
	f    *join.Facts
	b    *join.BrokerFacts
}

func found(from string, cidrs ...string) networks.Found {
	f := networks.Found{From: from}
	for _, s := range cidrs {
		f.CIDRs = append(f.CIDRs, netip.MustParsePrefix(s))
	}
	return f
}

func normal() *situation {
	administrator := brokertest.Key("administrator")
	s := &situation{
		Options: join.DefaultOptions(),
		file: &broker.JoinFile{
			BrokerURL: "https://hub:6443/", CA: []byte("ca"), Namespace: "submariner-k8s-broker",
			SigningKey: administrator, Administrator: administrator.Public(),
		},
		f: &join.Facts{
			URL:     "https://west:6443",
			Version: "v1.36.3",
			UID:     "uid-west",
			Nodes:   []corev1.Node{clustertest.Node("n1", "10.89.1.1"), clustertest.Node("n2", "10.89.1.2")},
			Network: networks.Discovered{
				Pods:     found("kubeadm", "10.111.0.0/16"),
				Services: found("the API", "10.101.0.0/16"),
			},
		},
		b: &join.BrokerFacts{
			URL: "https://hub:6443", Version: "v1.36.3+k3s1", Namespace: "submariner-k8s-broker",
			Broker: &v1alpha1.Broker{}, Sets: []string{"default", "prod"},
			Members: []catalog.Set{{Name: "default", Namespace: "submariner-k8s-broker"}}, GlobalKnown: true,
		},
	}
	s.ClusterID = "west"
	return s
}

func (s *situation) plan() (*join.Plan, error) {
	return join.MakePlan(s.Options, s.file, s.f, s.b)
}

func (s *situation) member(id, pods, services, gateway string) {
	set := &s.b.Members[0]
	labels := map[string]string{submarinerv1.ClusterIDLabel: id}
	grant, err := s.file.SigningKey.SignGrant(trust.Grant{Cluster: id, Key: brokertest.Key(id).Public(), Serial: 1})
	if err != nil {
		panic(err)
	}
	set.Clusters = append(set.Clusters, submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Name: id, Labels: labels, Annotations: map[string]string{submarinerv1.GrantAnnotation: grant},
	}, Spec: submarinerv1.ClusterSpec{
		ClusterID: id, ClusterCIDR: []string{pods}, ServiceCIDR: []string{services},
	}})
	if gateway != "" {
		set.Endpoints = append(
			set.Endpoints,
			submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: submarinerv1.EndpointSpec{
				ClusterID:     id,
				Hostname:      "gw",
				PrivateIP:     gateway,
				Backend:       "vxlan",
				BackendConfig: map[string]string{submarinerv1.BackendDrivers: drivers.Names()},
			}},
		)
	}
}

// policy makes a policy for all pairs on the broker.
func (s *situation) policy(name, driver string) {
	set := &s.b.Members[0]
	set.Policies = append(set.Policies, v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
		}, ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: driver}},
	})
}

func TestPlan(t *testing.T) {
	s := normal()
	s.Labels = map[string]string{"b": "2", "a": "1"}
	s.b.Broker.Spec.CableDriver = "vxlan"
	s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
	s.member("new", "10.113.0.0/16", "10.103.0.0/16", "")
	s.member("west", "10.111.0.0/16", "10.101.0.0/16", "10.89.1.1") // its own, of a join before
	s.member("evil", "10.114.0.0/16", "10.104.0.0/16", "10.89.4.1")
	members := s.b.Members[0].Clusters
	members[len(members)-1].Annotations = nil // without a grant, no cluster connects to it
	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"n1"}, p.Gateways)
	require.Equal(t, []string{"east"}, p.Present)
	require.Equal(t, "hub:6443", p.Submariner.Spec.BrokerK8sApiServer)
	require.Equal(t, "10.111.0.0/16", p.Submariner.Spec.ClusterCIDR)
	require.Equal(t, []string{"default"}, p.Submariner.Spec.ClusterSets)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, p.Submariner.Spec.ClusterLabels)
	require.False(t, p.OthersNamespace)

	s.f.Namespace = &corev1.Namespace{}
	p, err = s.plan()
	require.NoError(t, err)
	require.True(t, p.OthersNamespace)
}

// A join never gives up that encryption is required, unless it is told to.
func TestPlanEncryption(t *testing.T) {
	const required = submarinerv1.EncryptionRequired
	for _, test := range []struct {
		flag      string
		was, want submarinerv1.Encryption
		driver    string
		warning   string
	}{
		{"", "", "", "vxlan", ""},
		{"", required, required, "ipsec", ""},
		{"optional", required, "", "vxlan", ""},
		{"required", "", required, "ipsec", ""},
		{
			"required",
			"",
			required,
			"vxlan",
			"no cable to clusters that join later, unless another policy matches them: cluster west requires encryption, but cable policy default specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
	} {
		s := normal()
		s.Encryption = test.flag
		s.b.Broker.Spec.CableDriver = "wireguard" // stale: the policies decide
		s.policy("default", test.driver)
		s.f.Submariner = joined("west", "hub:6443")
		s.f.Submariner.Spec.Encryption = test.was
		p, err := s.plan()
		require.NoError(t, err)
		require.Equal(t, test.want, p.Submariner.Spec.Encryption)
		if test.warning != "" {
			require.Contains(t, p.Warnings, test.warning)
		} else {
			require.NotContains(t, strings.Join(p.Warnings, "\n"), "requires encryption")
		}
	}
	s := normal()
	s.Encryption = "maybe"
	_, err := s.plan()
	require.ErrorContains(t, err, `--encryption "maybe" is not a value: use required or optional`)
	s.Encryption = ""
	s.Specified = []string{"encryption"} // --encryption "$UNSET"
	_, err = s.plan()
	require.ErrorContains(t, err, `--encryption "" is not a value: use required or optional`)
}

func TestPlanRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*situation)
		want   string
	}{
		{
			"cluster too old",
			func(s *situation) { s.f.Version = "v1.29.17-eks" },
			"the cluster at https://west:6443 runs Kubernetes v1.29.17-eks: upgrade it to 1.30 or later",
		},
		{
			"broker too old",
			func(s *situation) { s.b.Version = "v1.29.9" },
			"the broker at https://hub:6443 runs Kubernetes v1.29.9: upgrade it to 1.30 or later",
		},
		{
			"no version",
			func(s *situation) { s.f.Version = "?" },
			`the cluster at https://west:6443 reports the version "?", which is not a version of Kubernetes`,
		},
		{
			"rights",
			func(s *situation) { s.f.Denied = []kube.Right{{Verb: "patch", Resource: "nodes"}} },
			"the cluster at https://west:6443 does not allow this user to patch nodes: join as a cluster administrator",
		},
		{
			"rights for a global network",
			func(s *situation) {
				s.globalnet()
				s.f.GlobalnetDenied = []kube.Right{
					{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "n"},
				}
			},
			"the cluster at https://west:6443 does not allow this user to create deployments.apps in namespace n: join as a cluster administrator, or without a global network, with --globalnet=false",
		},
		{
			"broker rights",
			func(s *situation) {
				s.b.Denied = []kube.Right{{Verb: "create", Resource: "serviceaccounts", Namespace: "b"}}
			},
			"the broker at https://hub:6443 does not allow this user to create serviceaccounts in namespace b: use a join file created by this version of subctl deploy-broker, and not revoked since",
		},
		{
			"no broker",
			func(s *situation) { s.b.Broker = nil },
			"there is no broker in namespace submariner-k8s-broker at https://hub:6443: create one with subctl deploy-broker",
		},
		{
			"pods undiscoverable",
			func(s *situation) { s.f.Network.Pods = networks.Found{} },
			"the pod network could not be discovered: specify it with --clustercidr",
		},
		{
			"Services undiscoverable",
			func(s *situation) { s.f.Network.Services = networks.Found{} },
			"the Service network could not be discovered: specify it with --servicecidr",
		},
		{
			"globalnet",
			func(s *situation) {
				s.b.Broker.Spec.GlobalnetEnabled = true
				s.b.Broker.Spec.GlobalnetCIDRRange = "10.96.0.0/11"
			},
			"10.111.0.0/16, the pod network of this cluster, overlaps 10.96.0.0/11, the range of the broker's globalnet: deploy the broker with another --globalnet-cidr-range\n" +
				"10.101.0.0/16, the Service network of this cluster, overlaps 10.96.0.0/11, the range of the broker's globalnet: deploy the broker with another --globalnet-cidr-range",
		},
		{
			"other's gateway within",
			func(s *situation) { s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.111.7.7") },
			`10.111.7.7, the address of gateway gw of cluster "east", is in 10.111.0.0/16, the pod network of this cluster: addresses in the network of a node cannot be reached through a cable` +
				"\nto join without a cable to the clusters that announce these addresses, add --force",
		},
		{
			"overlaps itself", func(s *situation) { s.ClusterCIDRs = []string{"10.111.0.0/16", "10.111.4.0/24"} },
			"10.111.0.0/16, the pod network of this cluster, overlaps 10.111.4.0/24, the pod network of this cluster: specify the right networks with --clustercidr and --servicecidr",
		},
		{
			"cable addresses", func(s *situation) { s.ServiceCIDRs = []string{"241.0.0.0/16"} },
			"--servicecidr: 241.0.0.0/16 overlaps 241.0.0.0/8, the addresses of our VXLAN devices between gateways",
		},
		{
			"link-local", func(s *situation) { s.ClusterCIDRs = []string{"169.254.0.0/16"} },
			"--clustercidr: 169.254.0.0/16 overlaps 169.254.0.0/16, link-local (RFC 3927)",
		},
		{
			"multicast", func(s *situation) { s.ClusterCIDRs = []string{"224.1.0.0/16"} },
			"--clustercidr: 224.1.0.0/16 overlaps 224.0.0.0/4, multicast (RFC 5771)",
		},
		{
			"discovered what cannot be", func(s *situation) { s.f.Network.Pods = found("kubeadm", "240.7.0.0/16") },
			"the pod network of this cluster cannot be connected: 240.7.0.0/16 overlaps 240.0.0.0/8, the addresses of our VXLAN devices between nodes: " +
				"specify the right networks with --clustercidr and --servicecidr",
		},
		{
			"broker's driver unknown", func(s *situation) { s.b.Broker.Spec.CableDriver = "magic" },
			`choose a default with --cable-driver: the broker's cable driver: unknown cable driver "magic": use one of ` +
				drivers.Names(),
		},
		{
			"address translation", func(s *situation) {
				s.NAT = true
				s.b.Broker.Spec.CableDriver = "wireguard" // stale: the policies decide
				s.member("east", "10.112.0.0/16", "10.102.0.0/16", "")
				s.policy("default", "vxlan")
			},
			`--natt: vxlan, which cable policy default chooses for the pair with cluster east, does not work through NAT: these drivers work through NAT: wireguard, vxlan+wireguard, ipsec; ` +
				`choose one with subctl cable-policy add, or omit --natt, and make sure that gateways can reach the node addresses of other gateways`,
		},
		{
			"broker's driver not offered", func(s *situation) {
				s.b.Broker.Spec.CableDriver = "vxlan"
				s.CableDrivers = []string{"wireguard", "ipsec"}
			},
			"choose a default with --cable-driver: the broker's cable driver vxlan is not one of the drivers that " +
				"the cluster offers (wireguard, ipsec): add it to --cable-drivers, or use one of these as the default",
		},
		{
			"no node ready", func(s *situation) {
				s.f.Nodes[0].Status.Conditions = nil
				s.f.Nodes[1].Spec.Unschedulable = true
			},
			"no node can become the gateway: none is Ready and schedulable; specify one with --gateway-nodes",
		},
		{
			"foreign Submariner",
			func(s *situation) {
				s.f.Submariner = &v1alpha1.Submariner{
					ObjectMeta: metav1.ObjectMeta{Name: "submariner", Namespace: "submariner-operator"},
				}
			},
			"this cluster was not joined by subctl (Submariner submariner-operator/submariner has no label app.kubernetes.io/managed-by=subctl): first uninstall it with the tool that joined it",
		},
		{
			"old key",
			func(s *situation) {
				s.b.Broker.Annotations = map[string]string{
					broker.PSKFingerprintAnnotation: broker.Fingerprint(broker.Secret("another")),
				}
			},
			"the pre-shared key in the join file is not the key of the other clusters: the file is outdated; create a new one with subctl deploy-broker",
		},
		{"being uninstalled", func(s *situation) {
			s.f.Submariner = joined("west", "hub:6443")
			s.f.Submariner.DeletionTimestamp = &metav1.Time{}
		}, "this cluster is being uninstalled: finish with subctl uninstall"},
		{
			"other broker", func(s *situation) { s.f.Submariner = joined("west", "other:6443") },
			"this cluster is joined to another broker, at other:6443: run subctl uninstall first",
		},
		{"namespace going", func(s *situation) {
			s.f.Namespace = &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "submariner-operator", DeletionTimestamp: &metav1.Time{}},
			}
		}, "namespace submariner-operator is being deleted: wait until it is deleted (subctl uninstall prints what " +
			"holds it)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			test.change(s)
			_, err := s.plan()
			require.EqualError(t, err, test.want)
		})
	}
}

// What another cluster announces is its own claim: it keeps no cluster from joining.
func TestAbsurdNetworksOfOthers(t *testing.T) {
	s := normal()
	s.member("east", "0.0.0.0/0", "garbage\x1b[31m", "10.90.1.1")
	s.member("north", "240.0.0.0/8", "10.102.0.0/16", "")
	s.member("south", "10.113.0.0/16", "10.103.0.0/16", "")
	many := &s.b.Members[0].Clusters[2].Spec.ClusterCIDR
	for i := range 5000 {
		*many = append(*many, fmt.Sprintf("11.%d.%d.0/24", i/256, i%256))
	}
	p, err := s.plan()
	require.NoError(t, err)
	require.Subset(t, p.Warnings, []string{
		`cluster "east" announces networks that join and the agents ignore: 0.0.0.0/0 is larger than any cluster: at most a /8 is accepted; and 1 mistake more`,
		`cluster "north" announces networks that join and the agents ignore: 240.0.0.0/8 overlaps 240.0.0.0/8, the addresses of our VXLAN devices between nodes`,
		`cluster "south" announces networks that join and the agents ignore: 5001 networks, of which the first 128 count`,
	})

	s = normal()
	// our pods, our nodes, and a gateway within our Services
	s.member("east", "10.111.0.0/16", "10.88.0.0/13", "10.101.0.9")
	_, err = s.plan()
	const conflicts = `10.111.0.0/16, the pod network of this cluster, overlaps 10.111.0.0/16, the pod network of cluster "east": clusters that use the same addresses cannot be connected without globalnet: let the administrator of the broker enable it with subctl deploy-broker --globalnet, and join then, both clusters with --globalnet; if they do not, specify the right networks with --clustercidr and --servicecidr
10.89.1.1, the address of node n1, is in 10.88.0.0/13, the Service network of cluster "east": addresses in the network of a node cannot be reached through a cable
10.89.1.2, the address of node n2, is in 10.88.0.0/13, the Service network of cluster "east": addresses in the network of a node cannot be reached through a cable
10.101.0.9, the address of gateway gw of cluster "east", is in 10.101.0.0/16, the Service network of this cluster: addresses in the network of a node cannot be reached through a cable`
	require.EqualError(t, err,
		conflicts+"\nto join without a cable to the clusters that announce these addresses, add --force")
	s.AllowConflicts = true
	p, err = s.plan()
	require.NoError(t, err)
	require.Contains(t, p.Warnings, "the agents do not connect clusters with these conflicts: "+conflicts)

	s.AllowConflicts = false
	s.f.Submariner = joined("west", "hub:6443") // it has joined before them
	s.f.Submariner.Spec.ClusterCIDR = "10.111.0.0/16"
	s.f.Submariner.Spec.ServiceCIDR = "10.101.0.0/16"
	_, err = s.plan()
	require.ErrorContains(t, err, conflicts, "it has joined, but enters this clusterset now")
	s.member("west", "10.111.0.0/16", "10.101.0.0/16", "")
	p, err = s.plan()
	require.NoError(t, err)
	require.Contains(t, p.Warnings, "the agents do not connect clusters with these conflicts: "+conflicts)
	s.f.Submariner.Spec.ServiceCIDR = "10.99.0.0/16"
	s.ClusterCIDRs = []string{"10.111.0.0/16"}
	s.ServiceCIDRs = []string{"10.101.0.0/16"}
	s.Specified = []string{"clustercidr", "servicecidr"}
	_, err = s.plan()
	require.ErrorContains(t, err, conflicts)

	s = normal()
	s.member("east", "10.112.0.0/16", "10.102.0.0/16", "")
	for i := range 100 {
		spec := &s.b.Members[0].Clusters[0].Spec
		spec.ClusterCIDR = append(spec.ClusterCIDR, fmt.Sprintf("10.111.%d.0/24", i))
	}
	_, err = s.plan()
	require.ErrorContains(t, err, "and 80 conflicts more")
}

func joined(id, server string) *v1alpha1.Submariner {
	sub := &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: id, BrokerK8sApiServer: server}}
	sub.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
	return sub
}

// The same broker under another address is no other broker.
func TestPlanKnowsItsBrokerAgain(t *testing.T) {
	s := normal()
	s.f.Submariner = joined("west", "10.0.0.1:6443")
	s.b.Holder = &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{broker.ClusterUIDAnnotation: "uid-west"}},
	}
	_, err := s.plan()
	require.NoError(t, err)
}

func TestPlanWarns(t *testing.T) {
	s := normal()
	s.f.Network.Guess = "the pod network is a guess"
	s.f.Network.Warnings = []string{"the network plugin needs a setting"}
	s.ClusterCIDRs = []string{"10.111.0.0/17"}
	s.b.Broker.Spec.GlobalnetEnabled = true
	s.b.Broker.Spec.GlobalnetCIDRRange = "242.0.0.0/8"
	s.f.Nodes[0].Labels[submarinerv1.GatewayNodeLabel] = "true"
	s.f.Nodes[0].Status.Conditions = nil
	p, err := s.plan()
	require.NoError(t, err)
	require.Empty(t, p.Gateways)
	require.Equal(t, []string{
		"the network plugin needs a setting",
		"--clustercidr 10.111.0.0/17 is used, although the pod network seems to be 10.111.0.0/16 (kubeadm)",
		"not waiting for the agents of these nodes:\n  not Ready: n1 (a gateway): their agents start, or are " +
			"replaced, when the nodes are Ready",
		"the image of the agents, localhost/subctl:devel, is in no registry: nodes that do not have it cannot pull it; push it to a registry and specify it with --image",
	}, p.Warnings)

	s.ClusterCIDRs = []string{"10.110.0.0/15"} // as the guess advises
	p, err = s.plan()
	require.NoError(t, err)
	require.NotContains(t, strings.Join(p.Warnings, "\n"), "pod network")
	s.f.Network.Guess = ""
	p, err = s.plan()
	require.NoError(t, err)
	require.Contains(t, p.Warnings,
		"--clustercidr 10.110.0.0/15 is used, although the pod network seems to be 10.111.0.0/16 (kubeadm)")

	s = normal()
	s.Image = "localhost/subctl:mine" // whoever says so has it there
	p, err = s.plan()
	require.NoError(t, err)
	require.NotContains(t, strings.Join(p.Warnings, "\n"), "image")
}

// Which Secret has the pre-shared key, no flag says: joining again keeps it.
func TestPlanKeepsThePSKSecret(t *testing.T) {
	s := normal()
	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, cluster.PSKSecret, p.Submariner.Spec.CeIPSecPSKSecret)
	s.f.Submariner = joined("west", "hub:6443")
	s.f.Submariner.Spec.CeIPSecPSKSecret = "our-psk"
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, "our-psk", p.Submariner.Spec.CeIPSecPSKSecret)
	require.Contains(t, clustertest.Text(t, clustertest.Render(t, p.Submariner)),
		"- mountPath: /var/run/secrets/submariner.io/our-psk\n          name: our-psk\n          readOnly: true\n")
}

// What join warns of follows from the policies that select the pairs of the cluster, and not from
// the driver that the broker was deployed with.
func TestPlanJudgesThePairs(t *testing.T) {
	cloud := v1alpha1.ClusterSelector{MatchLabels: map[string]string{"site": "cloud"}}
	for _, test := range []struct {
		name   string
		change func(*situation)
		want   []string
	}{
		{"the default policy was changed since", func(s *situation) {
			s.CableDriver = "vxlan"
			s.b.Broker.Spec.CableDriver = "vxlan"
			s.policy("default", "ipsec")
		}, []string{"--cable-driver vxlan is used only where no cable policy decides: cable policy default chooses " +
			"ipsec for the pairs with clusters east, north. To use vxlan for the pairs of this cluster: subctl " +
			"cable-policy add west-cables --left-cluster-selector submariner-io/clusterID=west --cable-driver vxlan. " +
			"For all pairs that no other policy matches: subctl deploy-broker --cable-driver vxlan"}},
		{"it chooses what was asked for", func(s *situation) {
			s.CableDriver = "ipsec"
			s.b.Broker.Spec.CableDriver = "vxlan"
			s.policy("default", "ipsec")
		}, nil},
		{"another policy selects a pair", func(s *situation) {
			s.CableDriver = "vxlan"
			s.Labels = map[string]string{"site": "cloud"}
			s.policy("default", "vxlan")
			s.policy("cloud", "ipsec")
			s.b.Members[0].Policies[1].ConnectionPolicies[0].LeftClusterSelector = cloud
			s.b.Members[0].Policies[1].ConnectionPolicies[0].RightClusterSelector = v1alpha1.ClusterSelector{
				MatchLabels: map[string]string{submarinerv1.ClusterIDLabel: "east"},
			}
		}, []string{"--cable-driver vxlan is used only where no cable policy decides: cable policy cloud chooses " +
			"ipsec for the pair with cluster east. To use vxlan, change policy cloud, or add one that is more " +
			"specific (subctl cable-policy)"}},
		{"a policy selects other pairs", func(s *situation) {
			s.CableDriver = "vxlan"
			s.policy("default", "vxlan")
			s.policy("cloud", "ipsec")
			s.b.Members[0].Policies[1].ConnectionPolicies[0].LeftClusterSelector = cloud
		}, nil},
		{"no policy decides", func(s *situation) {
			s.CableDriver = "vxlan"
			s.b.Broker.Spec.CableDriver = "ipsec"
		}, nil},
		{"no policy decides, and the defaults differ", func(s *situation) {
			s.CableDriver = "ipsec"
		}, []string{
			"no cable to cluster east: no cable policy matches, and the default drivers differ (cluster east: vxlan, cluster west: ipsec): create a policy (subctl cable-policy add --name default), or join both clusters with the same --cable-driver",
			"no cable to cluster north: no cable policy matches, and the default drivers differ (cluster north: vxlan, cluster west: ipsec): create a policy (subctl cable-policy add --name default), or join both clusters with the same --cable-driver",
		}},
		{"no other cluster yet", func(s *situation) {
			s.CableDriver = "wireguard"
			s.b.Broker.Spec.CableDriver = "wireguard"
			s.b.Members[0].Clusters = nil
			s.b.Members[0].Endpoints = nil
			s.policy("default", "ipsec")
		}, []string{"--cable-driver wireguard is used only where no cable policy decides: cable policy default " +
			"chooses ipsec for the pairs with clusters that join later. To use wireguard for the pairs of this " +
			"cluster: subctl cable-policy add west-cables --left-cluster-selector submariner-io/clusterID=west " +
			"--cable-driver wireguard. For all pairs that no other policy matches: subctl deploy-broker " +
			"--cable-driver wireguard"}},
		{
			"encryption is required",
			func(s *situation) {
				s.Encryption = "required"
				s.b.Broker.Spec.CableDriver = "ipsec"
				s.policy("default", "vxlan")
			},
			[]string{
				"no cable to clusters east, north: cluster west requires encryption, but cable policy default specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
			},
		},
		{"encryption is required, and each pair has a policy", func(s *situation) {
			s.Encryption = "required"
			s.b.Broker.Spec.CableDriver = "vxlan"
			s.Labels = map[string]string{"site": "cloud"}
			s.policy("default", "vxlan")
			s.policy("cloud", "ipsec")
			s.b.Members[0].Policies[1].ConnectionPolicies[0].LeftClusterSelector = cloud
		}, nil},
		{"a driver that is not offered", func(s *situation) {
			s.CableDrivers = []string{"vxlan"}
			s.policy("default", "ipsec")
		}, []string{"no cable to clusters east, north: this cluster does not offer ipsec"}},
		{
			"address translation",
			func(s *situation) {
				s.NAT = true
				s.f.Submariner = joined("west", "hub:6443")
				s.f.Submariner.Spec.NatEnabled = true
				s.f.Submariner.Labels = map[string]string{"app.kubernetes.io/managed-by": "subctl"}
				s.policy("default", "vxlan")
			},
			[]string{
				"Submariner.spec.natEnabled: vxlan, which cable policy default chooses for the pairs with clusters east, north, does not work through NAT: these drivers work through NAT: wireguard, vxlan+wireguard, ipsec; choose one with subctl cable-policy add, or specify --natt=false, and make sure that gateways can reach the node addresses of other gateways",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.Image = "quay.io/a/b:c"
			s.GatewayNodes = []string{"n1"}
			s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
			s.member("north", "10.113.0.0/16", "10.103.0.0/16", "10.89.3.1")
			test.change(s)
			p, err := s.plan()
			require.NoError(t, err)
			require.Equal(t, test.want, p.Warnings)
		})
	}
}
