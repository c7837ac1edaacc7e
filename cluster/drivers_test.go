package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
)

func TestCheckDrivers(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*cluster.Options)
		want   string // part of the error; empty: it is all right
	}{
		{"none named", func(*cluster.Options) {}, ""},
		{"default among the offered", func(o *cluster.Options) { o.CableDriver, o.CableDrivers = "libreswan", []string{"vxlan", "ipsec"} }, ""},
		{"default is the combined cable", func(o *cluster.Options) {
			o.CableDriver, o.CombinedCableDrivers = "vxlan+ipsec", []string{"libreswan", "vxlan"}
		}, ""},
		{
			"default not among the offered", func(o *cluster.Options) { o.CableDriver, o.CableDrivers = "vxlan", []string{"wireguard", "ipsec"} },
			"--cable-driver vxlan is the default, but not among what the cluster is to offer (wireguard, ipsec): add it to --cable-drivers, or make one of these the default",
		},
		{"unknown", func(o *cluster.Options) { o.CableDrivers = []string{"vxlan", "gre"} }, `--cable-drivers: there is no cable driver "gre": use one of `},
		{
			"one driver is no combination", func(o *cluster.Options) { o.CombinedCableDrivers = []string{"vxlan"} },
			"--combined-cable-drivers vxlan is one driver, and a combined cable is one inside another: choose vxlan,wireguard or vxlan,ipsec",
		},
		{
			"encryption inside encryption", func(o *cluster.Options) { o.CombinedCableDrivers = []string{"wireguard", "ipsec"} },
			"--combined-cable-drivers wireguard,ipsec cannot be combined: choose vxlan,wireguard or vxlan,ipsec",
		},
		{"a driver twice", func(o *cluster.Options) { o.CombinedCableDrivers = []string{"vxlan", "vxlan"} }, "--combined-cable-drivers vxlan,vxlan cannot be combined"},
		{"port wrong", func(o *cluster.Options) { o.NATTPort = 0 }, "--nattport 0 is not a UDP port: choose one from 1 to 65535"},
		{
			"port of another driver", func(o *cluster.Options) { o.NATTPort = 4501 },
			"--nattport: ipsecPort: UDP port 4501 is that of wireguardPort too: choose another, from 1 to 65535",
		},
		{"port of a driver that is not offered", func(o *cluster.Options) {
			o.NATTPort, o.CableDriver, o.CableDrivers = 4501, "ipsec", []string{"vxlan", "ipsec"}
		}, ""},
		{
			"port of subctl's own", func(o *cluster.Options) { o.NATTPort = 4800 },
			"--nattport: ipsecPort: UDP port 4800 is that of VXLAN between the nodes of a cluster too: choose another, from 1 to 65535",
		},
		{"ConfigMap", func(o *cluster.Options) { o.CableDriverConfig = "submariner-operator/cables" }, ""},
		{
			"ConfigMap of another namespace", func(o *cluster.Options) { o.CableDriverConfig = "net/cables" },
			`--cable-driver-config net/cables is in namespace "net", but a pod can only have ConfigMaps of its own: put it into submariner-operator`,
		},
		{"ConfigMap without a name", func(o *cluster.Options) { o.CableDriverConfig = "submariner-operator/" }, `--cable-driver-config: "" cannot be the name of a ConfigMap`},
		{"path", func(o *cluster.Options) { o.CableDriverConfigPath = "/etc/cables" }, ""},
		{
			"path relative", func(o *cluster.Options) { o.CableDriverConfigPath = "etc/../cables" },
			`--cable-driver-config-path "etc/../cables" is not the path of a folder: say one such as /etc/submariner/cable-driver-config`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := cluster.DefaultOptions()
			o.ClusterID = "west"
			test.change(&o)
			if err := o.Validate(); test.want != "" {
				require.ErrorContains(t, err, test.want)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// What join takes is in the Submariner; with a ConfigMap and everything else of cables
// said, the gateway's pods are told.
func TestRenderCables(t *testing.T) {
	sub := west()
	sub.Spec.CableDrivers = []string{"vxlan", "wireguard"}
	sub.Spec.CombinedCableDrivers = []string{"vxlan", "ipsec"}
	sub.Spec.CableDriverCustomConfig = &v1alpha1.ConfigMapRef{ConfigMapName: "cables"}
	sub.Spec.CableDriverCustomConfigPath = "/etc/cables"
	sub.Spec.CeIPSecDebug, sub.Spec.CeIPSecForceUDPEncaps, sub.Spec.CeIPSecPreferredServer = true, true, true
	got := text(t, render(t, sub))
	for _, want := range []string{
		"- name: SUBMARINER_CABLEDRIVERS\n          value: vxlan,wireguard\n",
		"- name: SUBMARINER_COMBINEDCABLEDRIVERS\n          value: vxlan,ipsec\n",
		"- name: SUBMARINER_CABLEDRIVERCUSTOMCONFIGPATH\n          value: /etc/cables\n",
		"- name: CE_IPSEC_FORCEENCAPS\n          value: \"true\"\n",
		"- name: CE_IPSEC_DEBUG\n          value: \"true\"\n",
		"- name: CE_IPSEC_PREFERREDSERVER\n          value: \"true\"\n",
		"- mountPath: /etc/cables\n          name: cable-driver-config\n          readOnly: true\n",
		"- configMap:\n          name: cables\n          optional: true\n        name: cable-driver-config\n",
	} {
		require.Contains(t, got, want)
	}
	sub.Spec.CableDriverCustomConfig.Namespace = "elsewhere" // a pod cannot have it
	require.NotContains(t, text(t, render(t, sub)), "configMap:")
}
