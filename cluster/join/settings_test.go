package join_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster/join"
)

// A mistake in a value that an earlier join stored names the field that stores it, and the flag
// that changes it: the user has not typed the value.
func TestMistakesInStoredSettings(t *testing.T) {
	for _, test := range []struct {
		name   string
		stored func(*v1alpha1.SubmarinerSpec)
		flag   string // what the user specifies
		change func(*join.Options)
		want   string
	}{
		{
			"stored default", func(s *v1alpha1.SubmarinerSpec) { s.CableDriver = "vxlan" },
			"cable-drivers", func(o *join.Options) { o.CableDrivers = []string{"ipsec", "wireguard"} },
			"Submariner.spec.cableDriver (stored by an earlier join; specify --cable-driver to change it) vxlan is " +
				"not one of the drivers that the cluster offers (ipsec, wireguard): add it to --cable-drivers, or " +
				"use one of these as the default",
		},
		{
			"stored drivers", func(s *v1alpha1.SubmarinerSpec) { s.CableDrivers = []string{"vxlan", "ipsec"} },
			"cable-driver", func(o *join.Options) { o.CableDriver = "wireguard" },
			"--cable-driver wireguard is not one of the drivers that the cluster offers (vxlan, ipsec): " +
				"add it to Submariner.spec.cableDrivers (stored by an earlier join; specify --cable-drivers to change it), or use one of these as the default",
		},
		{
			"stored port", func(s *v1alpha1.SubmarinerSpec) {
				s.CableDrivers = []string{"ipsec"}
				s.CeIPSecNATTPort = 4501
			},
			"cable-drivers", func(o *join.Options) { o.CableDrivers = []string{"ipsec", "wireguard"} },
			"Submariner.spec.ceIPSecNATTPort (stored by an earlier join; specify --nattport to change it): wireguardPort: UDP port 4501 is already used by ipsecPort: use another, from 1 to 65535",
		},
		{
			"stored network", func(s *v1alpha1.SubmarinerSpec) { s.ClusterCIDR = "10.0.0.0/99" },
			"natt", func(*join.Options) {},
			`Submariner.spec.clusterCIDR (stored by an earlier join; specify --clustercidr to change it): "10.0.0.0/99" is not a network`,
		},
		{
			"both specified", func(s *v1alpha1.SubmarinerSpec) { s.CableDriver = "ipsec" },
			"cable-driver", func(o *join.Options) {
				o.CableDriver = "vxlan"
				o.CableDrivers = []string{"ipsec"}
				o.Specified = []string{"cable-driver", "cable-drivers"}
			},
			"--cable-driver vxlan is not one of the drivers that the cluster offers (ipsec): add it to --cable-drivers, or use one of these as the default",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Submariner = joined("west", "hub:6443")
			test.stored(&s.f.Submariner.Spec)
			s.Specified = []string{test.flag}
			test.change(&s.Options)
			_, err := s.plan()
			require.ErrorContains(t, err, test.want)
		})
	}
}

// Who offers one driver need not name it again as the default: the stored default may be the
// broker's, which nobody has chosen for this cluster.
func TestTheOnlyDriverIsTheDefault(t *testing.T) {
	for _, test := range []struct {
		name      string
		specified string
		change    func(*join.Options)
		want      string
	}{
		{"one", "cable-drivers", func(o *join.Options) { o.CableDrivers = []string{"wireguard"} }, "wireguard"},
		{
			"one combined", "combined-cable-drivers",
			func(o *join.Options) { o.CombinedCableDrivers = []string{"vxlan", "ipsec"} }, "vxlan+ipsec",
		},
		{"two", "cable-drivers", func(o *join.Options) { o.CableDrivers = []string{"wireguard", "vxlan"} }, "vxlan"},
		{"another setting", "natt", func(o *join.Options) { o.NAT = false }, "vxlan"},
	} {
		t.Run(test.name, func(t *testing.T) {
			joined := &v1alpha1.Submariner{}
			joined.Labels = map[string]string{"app.kubernetes.io/managed-by": "subctl"}
			joined.Spec = v1alpha1.SubmarinerSpec{ClusterID: "west", CableDriver: "vxlan"}
			o := join.DefaultOptions()
			o.Specified = []string{test.specified}
			test.change(&o)
			require.Equal(t, test.want, o.With(joined).CableDriver)
		})
	}
}
