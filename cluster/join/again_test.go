package join_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/join"
	"subctl/cluster/networks"
)

// again is a cluster that has joined with values other than the defaults in all fields that
// a flag or a person with kubectl can set.
func again(t *testing.T) *situation {
	t.Helper()
	s := normal()
	sub := joined("west", "hub:6443")
	special := map[string]any{ // valid values, and fields with a type of their own
		"CableDriver":             "ipsec",
		"CableDrivers":            []string{"ipsec", "wireguard"},
		"CombinedCableDrivers":    []string{"vxlan", "ipsec"},
		"CableDriverCustomConfig": &v1alpha1.ConfigMapRef{ConfigMapName: "cables", Namespace: cluster.Namespace},
		"ClusterCIDR":             "10.50.0.0/16",
		"ServiceCIDR":             "10.60.0.0/16",
		"ClusterID":               "west",
		"ClusterLabels":           map[string]string{"site": "cloud"},
		"ClusterSets":             []string{"default"},
		"CoreDNSCustomConfig":     &v1alpha1.ConfigMapRef{ConfigMapName: "dns"},
		"ConnectionHealthCheck": &v1alpha1.HealthCheckSpec{
			Enabled:            false,
			IntervalSeconds:    7,
			MaxPacketLossCount: 9,
		},
		"Encryption":               submarinerv1.EncryptionRequired,
		"PoliciesFrom":             v1alpha1.PoliciesFromBroker,
		"ImageOverrides":           map[string]string{cluster.GatewayName: "quay.io/a/b:c", "other": "d"},
		"NodeSelector":             map[string]string{"a": "b"},
		"Tolerations":              []corev1.Toleration{{Key: "a"}},
		"BrokerK8sApiServer":       "hub:6443",
		"Namespace":                cluster.Namespace,
		"BrokerK8sRemoteNamespace": "submariner-k8s-broker",
		"BrokerK8sCA":              "Y2E=",
		"ColorCodes":               "blue",
		"CeIPSecNATTPort":          14500,
		"GlobalCIDR":               "242.7.0.0/16",
		"Gateways":                 new(int32(3)),
		"ServiceDiscovery":         &v1alpha1.ServiceDiscoverySpec{ExportNamespaces: []string{"shop"}},
	}
	for field := range reflect.TypeFor[v1alpha1.SubmarinerSpec]().Fields() {
		value := reflect.ValueOf(&sub.Spec).Elem().FieldByIndex(field.Index)
		switch {
		case special[field.Name] != nil:
			value.Set(reflect.ValueOf(special[field.Name]))
		case value.Kind() == reflect.String:
			value.SetString("of-before")
		case value.Kind() == reflect.Bool:
			value.SetBool(true)
		case value.CanInt():
			value.SetInt(14000)
		default:
			value.Set(reflect.ValueOf([]string{"of-before"}))
		}
		require.False(t, value.IsZero(), field.Name)
	}
	s.f.Submariner = sub
	s.b.Broker.Spec.PoliciesFrom = v1alpha1.PoliciesFromBroker
	s.globalnet()
	s.ClusterID = "suggested-by-the-kubeconfig"
	return s
}

// What a second join does not specify stays as it is: every field, also those that will be
// added to a Submariner.
func TestJoiningAgainKeepsEverySetting(t *testing.T) {
	s := again(t)
	before := s.f.Submariner.Spec.DeepCopy()
	s.f.Submariner.Spec = before.WithoutEffect() // the API server refuses the rest
	want := s.f.Submariner.Spec.DeepCopy()
	want.Version = "devel"
	want.HaltOnCertificateError = true // of this binary
	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, *want, p.Submariner.Spec)
	require.Equal(t, []join.Change{{Field: "version", Was: "of-before", Will: "devel"}}, p.Changes)
	require.Empty(t, p.Affected)
	s.f.Submariner.Spec = *before // of a version that stored them
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, *want, p.Submariner.Spec)

	require.Contains(t, p.Warnings,
		"Submariner.spec.clusterCIDR 10.50.0.0/16 is used, although the pod network seems to be 10.111.0.0/16 (kubeadm): specify --clustercidr to change it")
	require.Contains(t, p.Warnings,
		"the agents keep their image, quay.io/a/b:c: specify another one with --image to replace them by this version, devel")

	s.Reset = true
	s.ClusterID = "west"
	p, err = s.plan()
	require.NoError(t, err)
	fresh := normal()
	fresh.b.Broker.Spec.PoliciesFrom = v1alpha1.PoliciesFromBroker
	first, err := fresh.plan()
	require.NoError(t, err)
	first.Submariner.Spec.GlobalCIDR = "242.7.0.0/16"                  // it gets the same again
	first.Submariner.Spec.Encryption = submarinerv1.EncryptionRequired // is only removed where the user asks for it
	require.Equal(t, first.Submariner.Spec, p.Submariner.Spec)
}

// Each flag changes its own field only.
func TestJoiningAgainChangesWhatItSpecifies(t *testing.T) {
	for _, test := range []struct {
		flag   string
		change func(*join.Options)
		want   []join.Change
	}{
		{
			"clustercidr",
			func(o *join.Options) { o.ClusterCIDRs = []string{"10.111.0.0/16"} },
			[]join.Change{{Field: "clusterCIDR", Was: "10.50.0.0/16", Will: "10.111.0.0/16"}},
		},
		{
			"servicecidr",
			func(o *join.Options) { o.ServiceCIDRs = []string{"10.101.0.0/16"} },
			[]join.Change{{Field: "serviceCIDR", Was: "10.60.0.0/16", Will: "10.101.0.0/16"}},
		},
		{
			"cable-driver",
			func(o *join.Options) { o.CableDriver = "wireguard" },
			[]join.Change{{Field: "cableDriver", Was: "ipsec", Will: "wireguard"}},
		},
		{
			"cable-drivers",
			func(o *join.Options) { o.CableDrivers = []string{"ipsec"} },
			[]join.Change{{Field: "cableDrivers", Was: "ipsec,wireguard", Will: "ipsec"}},
		},
		{
			"combined-cable-drivers",
			func(o *join.Options) { o.CombinedCableDrivers = nil },
			[]join.Change{{Field: "combinedCableDrivers", Was: "vxlan,ipsec"}},
		},
		{"cluster-labels", func(o *join.Options) { o.Labels = map[string]string{"zone": "eu"} }, []join.Change{
			{Field: "clusterLabels.site", Was: "cloud"}, {Field: "clusterLabels.zone", Will: "eu"},
		}},
		{
			"natt",
			func(o *join.Options) { o.NAT = false },
			[]join.Change{{Field: "natEnabled", Was: "true", Will: "false"}},
		},
		{
			"nattport",
			func(o *join.Options) { o.NATTPort = 4500 },
			[]join.Change{{Field: "ceIPSecNATTPort", Was: "14500", Will: "4500"}},
		},
		{
			"health-check",
			func(o *join.Options) { o.HealthCheck = true },
			[]join.Change{{Field: "connectionHealthCheck.enabled", Will: "true"}},
		},
		{"image", func(o *join.Options) { o.Image = "x/y:z" }, []join.Change{
			{Field: "imageOverrides.submariner-gateway", Was: "quay.io/a/b:c", Will: "x/y:z"},
			{Field: "imageOverrides.submariner-routeagent", Will: "x/y:z"},
		}},
		{"cable-driver-config", func(o *join.Options) { o.CableDriverConfig = "" }, []join.Change{
			{Field: "cableDriverCustomConfig.configMapName", Was: "cables"},
			{Field: "cableDriverCustomConfig.namespace", Was: "submariner-operator"},
		}},
	} {
		t.Run(test.flag, func(t *testing.T) {
			s := again(t)
			s.f.Submariner.Spec = s.f.Submariner.Spec.WithoutEffect()
			s.Specified = []string{test.flag}
			test.change(&s.Options)
			p, err := s.plan()
			require.NoError(t, err)
			got := slices.DeleteFunc(p.Changes, func(c join.Change) bool { return c.Field == "version" })
			require.Equal(t, test.want, got)
		})
	}
}

// The changes name the clusters that they affect, and the cables before and after.
func TestJoiningAgainNamesTheAffectedClusters(t *testing.T) {
	s := again(t)
	s.member("west", "10.50.0.0/16", "10.60.0.0/16", "10.89.1.1")
	s.b.Members[0].Clusters[0].Labels["site"] = "cloud"
	s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
	s.member("north", "10.113.0.0/16", "10.103.0.0/16", "10.89.3.1")
	cloud := v1alpha1.ClusterSelector{MatchLabels: map[string]string{"site": "cloud"}}
	s.policy("default", "wireguard")
	s.policy("cloud", "ipsec")
	s.b.Members[0].Policies[1].ConnectionPolicies[0].LeftClusterSelector = cloud
	s.f.Submariner.Spec = s.f.Submariner.Spec.WithoutEffect()
	s.f.Submariner.Spec.NatEnabled = false
	s.f.Submariner.Spec.CableDrivers = []string{"ipsec", "wireguard", "vxlan"}

	p, err := s.plan()
	require.NoError(t, err)
	require.Empty(t, p.Affected)

	s.Specified = []string{"cluster-labels"}
	s.Labels = map[string]string{"site": "onprem"}
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(
		t,
		"the settings of this cluster change:\n  clusterLabels.site: cloud → onprem\n  version: of-before → devel\n"+
			"affected clusters: east, north (ipsec → wireguard)",
		p.ChangesText(),
	)

	require.NoError(t, p.Refusal())

	s.policy("plain", "vxlan")
	s.b.Members[0].Policies[2].ConnectionPolicies[0].LeftClusterSelector = v1alpha1.ClusterSelector{
		MatchLabels: map[string]string{"site": "onprem"},
	}
	s.f.Submariner.Spec.Encryption = ""
	p, err = s.plan()
	require.NoError(t, err)
	require.EqualError(t, p.Refusal(),
		"2 pairs of clusters would lose encryption:\n"+
			"  east - west: ipsec (cloud) → vxlan (plain), not encrypted\n"+
			"  north - west: ipsec (cloud) → vxlan (plain), not encrypted")
	s.Specified = []string{"cable-drivers"}
	s.CableDrivers = []string{"vxlan"}
	s.CombinedCableDrivers = nil
	s.Specified = append(s.Specified, "combined-cable-drivers", "cable-driver")
	s.CableDriver = ""
	p, err = s.plan()
	require.NoError(t, err)
	require.EqualError(t, p.Refusal(), "2 pairs of clusters would have no cable:\n"+
		"  east - west: ipsec (cloud) → none: this cluster does not offer ipsec\n"+
		"  north - west: ipsec (cloud) → none: this cluster does not offer ipsec")

	require.Contains(t, p.ChangesText(), "affected clusters: east, north (ipsec → no cable)")
	require.Contains(t, p.Warnings, "no cable to clusters east, north: this cluster does not offer ipsec")

	s.Specified = []string{"natt"}
	s.NAT = true
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"east, north"}, p.Affected)
}

// A change that has a pair use a driver which the other cluster, or this one, cannot run is
// refused, with the reason.
func TestJoiningAgainKnowsWhatClustersLack(t *testing.T) {
	for _, id := range []string{"east", "west"} {
		s := again(t)
		s.member("west", "10.50.0.0/16", "10.60.0.0/16", "10.89.1.1")
		s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
		for _, e := range s.b.Members[0].Endpoints {
			if e.Spec.ClusterID == id {
				e.Spec.BackendConfig[submarinerv1.BackendDrivers] = "vxlan,wireguard"
				e.Spec.BackendConfig[submarinerv1.BackendMissing] = "ipsec: this node has no IPsec"
			}
		}
		s.policy("default", "wireguard")
		s.policy("cloud", "ipsec")
		s.b.Members[0].Policies[1].ConnectionPolicies[0].LeftClusterSelector = v1alpha1.ClusterSelector{
			MatchLabels: map[string]string{"site": "cloud"},
		}
		s.f.Submariner.Spec = s.f.Submariner.Spec.WithoutEffect()
		s.f.Submariner.Spec.NatEnabled = false
		s.f.Submariner.Spec.ClusterLabels = nil
		s.Specified = []string{"cluster-labels"}
		s.Labels = map[string]string{"site": "cloud"}
		p, err := s.plan()
		require.NoError(t, err)
		require.EqualError(
			t,
			p.Refusal(),
			"1 pair of clusters would have no cable:\n  east - west: wireguard (default) → none: cluster "+id+
				" does not offer ipsec: this node has no IPsec",
		)
	}
}

// A label that a person has changed on the Cluster object decides, not the Submariner.
func TestJoiningAgainKnowsTheLabelsInForce(t *testing.T) {
	s := again(t)
	s.member("west", "10.50.0.0/16", "10.60.0.0/16", "10.89.1.1")
	s.b.Members[0].Clusters[0].Labels["site"] = "changed"
	s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
	s.policy("default", "wireguard")
	s.policy("cloud", "ipsec")
	s.b.Members[0].Policies[1].ConnectionPolicies[0].LeftClusterSelector = v1alpha1.ClusterSelector{
		MatchLabels: map[string]string{"site": "cloud"},
	}
	s.f.Submariner.Spec = s.f.Submariner.Spec.WithoutEffect()
	s.Specified = []string{"cluster-labels"}
	s.Labels = map[string]string{"site": "cloud", "zone": "eu"}
	p, err := s.plan()
	require.NoError(t, err)
	require.Empty(t, p.Affected, "site stays as the person has set it")
}

// The address that --broker-url specified stays while the join file has the same address.
func TestJoiningAgainKeepsTheBrokersAddress(t *testing.T) {
	s := normal()
	s.BrokerURL = "https://10.0.0.1:6443"
	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, "10.0.0.1:6443", p.Submariner.Spec.BrokerK8sApiServer)

	s = normal()
	s.f.Submariner = p.Submariner.DeepCopy()
	s.f.Submariner.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
	s.b.Holder = &corev1.ServiceAccount{}
	s.b.Holder.Annotations = map[string]string{"submariner.io/cluster-uid": "uid-west"}
	p, err = s.plan()
	require.NoError(t, err)
	require.Empty(t, p.Changes)
	require.Equal(t, s.f.Submariner.Annotations, p.Submariner.Annotations)

	s.file.BrokerURL = "https://moved:6443"
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []join.Change{{Field: "brokerK8sApiServer", Was: "10.0.0.1:6443", Will: "moved:6443"}}, p.Changes)
}

// No text about changes holds a secret.
func TestChangesHoldNoSecret(t *testing.T) {
	s := again(t)
	s.f.Submariner.Spec.BrokerK8sApiServerToken = "topsecret"
	s.f.Submariner.Spec.CeIPSecPSK = "topsecret"
	s.Reset = true
	s.ClusterID = "west"
	p, err := s.plan()
	require.NoError(t, err)
	require.NotContains(t, p.ChangesText(), "topsecret")
	require.Contains(t, p.ChangesText(), "ceIPSecPSK: (secret, 9 characters) → (none)")
}

// A change after which other clusters cannot reach addresses of this one must be confirmed,
// such as --reset where the discovery has found less than the user specified before.
func TestJoiningAgainConfirmsThatNetworksShrink(t *testing.T) {
	for _, test := range []struct {
		name, found, guess string
		specified          []string
		reset, alone       bool
		want               string
	}{
		{name: "kept", found: "10.50.0.0/23", guess: "a guess"},
		{
			name: "reset to a guess", found: "10.50.0.0/23", guess: "a guess", reset: true,
			want: "the pod network of this cluster changes from 10.50.0.0/16 to 10.50.0.0/23, which is a guess: other clusters can no longer reach all of its addresses; keep it with --clustercidr 10.50.0.0/16",
		},
		{name: "reset to more", found: "10.50.0.0/15", reset: true},
		{name: "reset, and nobody else is there", found: "10.50.0.0/23", reset: true, alone: true},
		{
			name: "specified", found: "10.50.0.0/16", specified: []string{"10.50.0.0/17", "10.50.128.0/18"},
			want: "the pod network of this cluster changes from 10.50.0.0/16 to 10.50.0.0/17,10.50.128.0/18: other clusters can no longer reach all of its addresses; keep it with --clustercidr 10.50.0.0/16",
		},
		{
			name:      "the same in parts",
			found:     "10.50.0.0/16",
			specified: []string{"10.50.0.0/17", "10.50.128.0/18", "10.50.192.0/18"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := again(t)
			s.f.Submariner.Spec = s.f.Submariner.Spec.WithoutEffect()
			s.f.Submariner.Spec.GlobalCIDR = ""
			s.b.Broker.Spec.GlobalnetEnabled = false
			s.f.Network = networks.Discovered{
				Pods:     found("the nodes", test.found),
				Services: found("the API", "10.60.0.0/16"),
				Guess:    test.guess,
			}
			s.member("west", "10.50.0.0/16", "10.60.0.0/16", "10.89.1.1")
			if !test.alone {
				s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
			}
			s.policy("default", "ipsec")
			s.ClusterID = "west"
			s.Reset = test.reset
			if test.specified != nil {
				s.Specified = []string{"clustercidr"}
				s.ClusterCIDRs = test.specified
			}
			p, err := s.plan()
			require.NoError(t, err)
			if test.want == "" {
				require.NoError(t, p.Refusal())
				return
			}
			require.EqualError(t, p.Refusal(), test.want)
		})
	}
}

// Whose policies apply is the broker's to say. Joining again shows that it has changed, and the
// cables that change with it.
func TestJoiningAgainShowsWhosePoliciesApply(t *testing.T) {
	s := again(t)
	s.f.Submariner.Spec = s.f.Submariner.Spec.WithoutEffect()
	spec := &s.f.Submariner.Spec
	spec.NatEnabled = false
	spec.CableDrivers = nil
	spec.PoliciesFrom = v1alpha1.PoliciesFromMembers
	spec.CombinedCableDrivers = nil
	s.member("west", "10.50.0.0/16", "10.60.0.0/16", "10.89.1.1")
	s.member("east", "10.112.0.0/16", "10.102.0.0/16", "10.89.2.1")
	s.policy("default", "wireguard")
	s.policy("east", "ipsec")
	s.b.Members[0].Policies[1].Labels = map[string]string{submarinerv1.ClusterIDLabel: "east"}
	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(
		t,
		"the settings of this cluster change:\n  policiesFrom: members → broker\n  version: of-before → devel\n"+
			"affected clusters: east (ipsec → wireguard)",
		p.ChangesText(),
	)
}
