package join_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"subctl/cluster/join"
)

func TestCheckDrivers(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*join.Options)
		want   string // part of the error; empty: it is all right
	}{
		{"none named", func(*join.Options) {}, ""},
		{"default among the offered", func(o *join.Options) {
			o.CableDriver = "libreswan"
			o.CableDrivers = []string{"vxlan", "ipsec"}
		}, ""},
		{"default is the combined cable", func(o *join.Options) {
			o.CableDriver = "vxlan+ipsec"
			o.CombinedCableDrivers = []string{"libreswan", "vxlan"}
		}, ""},
		{
			"default not among the offered", func(o *join.Options) {
				o.CableDriver = "vxlan"
				o.CableDrivers = []string{"wireguard", "ipsec"}
			},
			"--cable-driver vxlan is not one of the drivers that the cluster offers (wireguard, ipsec): add it to --cable-drivers, or use one of these as the default",
		},
		{
			"unknown",
			func(o *join.Options) { o.CableDrivers = []string{"vxlan", "gre"} },
			`--cable-drivers: unknown cable driver "gre": use one of `,
		},
		{
			"one driver is no combination", func(o *join.Options) { o.CombinedCableDrivers = []string{"vxlan"} },
			"--combined-cable-drivers vxlan is one driver, and a combined cable is one inside another: choose vxlan,wireguard or vxlan,ipsec",
		},
		{
			"encryption inside encryption",
			func(o *join.Options) { o.CombinedCableDrivers = []string{"wireguard", "ipsec"} },
			"--combined-cable-drivers wireguard,ipsec cannot be combined: choose vxlan,wireguard or vxlan,ipsec",
		},
		{
			"a driver twice",
			func(o *join.Options) { o.CombinedCableDrivers = []string{"vxlan", "vxlan"} },
			"--combined-cable-drivers vxlan,vxlan cannot be combined",
		},
		{
			"port wrong",
			func(o *join.Options) { o.NATTPort = 0 },
			"--nattport 0 is not a UDP port: choose one from 1 to 65535",
		},
		{
			"port of another driver", func(o *join.Options) { o.NATTPort = 4501 },
			"--nattport: ipsecPort: UDP port 4501 is already used by wireguardPort: use another, from 1 to 65535",
		},
		{"port of a driver that is not offered", func(o *join.Options) {
			o.NATTPort = 4501
			o.CableDriver = "ipsec"
			o.CableDrivers = []string{"vxlan", "ipsec"}
		}, ""},
		{
			"port of subctl's own", func(o *join.Options) { o.NATTPort = 4800 },
			"--nattport: ipsecPort: UDP port 4800 is already used by VXLAN between the nodes of a cluster: use another, from 1 to 65535",
		},
		{"ConfigMap", func(o *join.Options) { o.CableDriverConfig = "submariner-operator/cables" }, ""},
		{
			"ConfigMap of another namespace", func(o *join.Options) { o.CableDriverConfig = "net/cables" },
			`--cable-driver-config net/cables is in namespace "net", but the agents may read only ConfigMaps of their own namespace: create it in submariner-operator`,
		},
		{
			"ConfigMap without a name",
			func(o *join.Options) { o.CableDriverConfig = "submariner-operator/" },
			`--cable-driver-config: "" is not a valid name of a ConfigMap`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := join.DefaultOptions()
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

// A ConfigMap that cannot be used does not keep a cluster from joining.
func TestPlanLooksAtTheConfigMap(t *testing.T) {
	for _, test := range []struct {
		name  string
		found *corev1.ConfigMap
		want  string // after what it is called; empty: no warning
	}{
		{"missing", nil, "it does not exist"},
		{"good", &corev1.ConfigMap{Data: map[string]string{"CableCustomConfig": "mtu: 1400"}}, ""},
		{
			"out of range",
			&corev1.ConfigMap{Data: map[string]string{"CableCustomConfig": "mtu: 14"}},
			`key CableCustomConfig: line 1: mtu "14": it must be a whole number from 576 to 65535`,
		},
		{
			"another key",
			&corev1.ConfigMap{Data: map[string]string{"cables": "mtu: 1400"}},
			"key CableCustomConfig: the key CableCustomConfig is missing: found only cables",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.Image = "quay.io/a/b:c"
			s.GatewayNodes = []string{"n1"}
			s.CableDriverConfig = "cables"
			s.f.CableConfig = test.found
			p, err := s.plan()
			require.NoError(t, err)
			var want []string
			if test.want != "" {
				want = []string{
					"ConfigMap submariner-operator/cables, which --cable-driver-config names: " + test.want +
						": until that is fixed, the previous settings apply, or the defaults",
				}
			}
			require.Equal(t, want, p.Warnings)
		})
	}
}
