package mesh_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
)

const configName = "cable-driver-config"

func TestSettings(t *testing.T) {
	named := &v1alpha1.ConfigMapRef{ConfigMapName: configName}
	inForce := map[string]cable.Config{vxlan.Name: {"vxlanPort": "4600"}}
	for _, test := range []struct {
		name    string
		spec    v1alpha1.SubmarinerSpec
		data    map[string]string // of the ConfigMap; nil: there is none
		inForce string            // before
		want    map[string]cable.Config
		err     string
	}{
		{name: "none"},
		{
			name: "in the Submariner",
			spec: v1alpha1.SubmarinerSpec{
				CeIPSecNATTPort:        4600,
				CeIPSecForceUDPEncaps:  true,
				CeIPSecDebug:           true,
				CeIPSecPreferredServer: true,
			},
			want: map[string]cable.Config{
				cable.IPsec: {
					"ipsecPort":       "4600",
					"encapsulation":   "yes",
					"debug":           "true",
					"preferredServer": "true",
				},
				cable.VXLANIPsec: {
					"ipsecPort":       "4600",
					"encapsulation":   "yes",
					"debug":           "true",
					"preferredServer": "true",
				},
			},
		},
		{name: "the default port", spec: v1alpha1.SubmarinerSpec{CeIPSecNATTPort: dataplane.IPsecPort}},
		{
			name: "the ConfigMap over the Submariner",
			spec: v1alpha1.SubmarinerSpec{CeIPSecForceUDPEncaps: true, CableDriverCustomConfig: named},
			data: map[string]string{"CableCustomConfig": "ipsec: {encapsulation: auto}"},
			want: map[string]cable.Config{
				cable.IPsec:      {"encapsulation": "auto"},
				cable.VXLANIPsec: {"encapsulation": "auto"},
			},
		},
		{
			name: "the port of another driver", spec: v1alpha1.SubmarinerSpec{CeIPSecNATTPort: dataplane.WireGuardPort},
			err: "ipsecPort: UDP port 4501 is already used by wireguardPort: use another, from 1 to 65535",
		},
		{
			name: "the port of a driver that is not offered",
			spec: v1alpha1.SubmarinerSpec{
				CeIPSecNATTPort: dataplane.WireGuardPort,
				CableDrivers:    []string{cable.IPsec},
			},
			want: map[string]cable.Config{cable.IPsec: {"ipsecPort": "4501"}, cable.VXLANIPsec: {"ipsecPort": "4501"}},
		},
		{name: "the ConfigMap is not named", data: map[string]string{"CableCustomConfig": "vxlanPort: 4600"}},
		{
			name: "the ConfigMap",
			spec: v1alpha1.SubmarinerSpec{CableDriverCustomConfig: named},
			data: map[string]string{"CableCustomConfig": "vxlan: {vxlanPort: 4600}"},
			want: inForce,
		},
		{
			name: "another key",
			spec: v1alpha1.SubmarinerSpec{CableDriverCustomConfig: named},
			data: map[string]string{"config.yaml": "vxlanPort: 4600"},
			err:  "ConfigMap cable-driver-config, key CableCustomConfig: the key CableCustomConfig is missing: found only config.yaml",
		},
		{
			name: "of another namespace",
			spec: v1alpha1.SubmarinerSpec{
				CableDriverCustomConfig: &v1alpha1.ConfigMapRef{ConfigMapName: configName, Namespace: "net"},
			},
			err: "Submariner.spec.cableDriverCustomConfig names ConfigMap cable-driver-config in namespace net, but a pod can only have those of its own: put it into submariner-operator",
		},
		{
			name:    "a port of subctl's own",
			spec:    v1alpha1.SubmarinerSpec{CableDriverCustomConfig: named},
			data:    map[string]string{"CableCustomConfig": "vxlanPort: 4800"},
			inForce: "vxlan: {vxlanPort: 4600}",
			want:    inForce,
			err:     "vxlanPort: UDP port 4800 is already used by VXLAN between the nodes of a cluster: use another, from 1 to 65535",
		},
		{
			name:    "what was in force is nonsense by now",
			spec:    v1alpha1.SubmarinerSpec{CableDriverCustomConfig: named},
			inForce: "vxlan: {colour: red}",
			err:     "there is no ConfigMap cable-driver-config in namespace submariner-operator, which Submariner.spec.cableDriverCustomConfig names: make it, or remove the name",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.spec.ClusterID = "east"
			objs := []client.Object{&submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{
				Name: "east", Annotations: map[string]string{submarinerv1.CableConfigAnnotation: test.inForce},
			}}}
			if test.data != nil {
				objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configName}, Data: test.data})
			}
			m := members.Membership{Held: &role.PriorClaims{}, Submariner: &v1alpha1.Submariner{Spec: test.spec}}
			m.ReadClusters(role.NewSnapshot("gw", objs...))
			o := ReadOffer(role.NewSnapshot("gw", objs...), m)
			if test.err != "" {
				require.EqualError(t, o.Err, test.err)
			} else {
				require.NoError(t, o.Err)
			}
			want := cable.FormatConfig(test.want)
			require.Equal(t, want, cable.FormatConfig(o.Settings))
		})
	}
}
