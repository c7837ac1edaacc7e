package install

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"subctl/sdewan"
)

// edge is a CNF with a LAN and an uplink.
func edge() CNF {
	return CNF{
		Name:          "edge",
		Namespace:     "branch",
		Purpose:       "cnf-1",
		Image:         "example/subctl:v1",
		Replicas:      1,
		Plugin:        Multus,
		AccountSecret: "edge-account",
		CertSecret:    "edge-cert",
		Networks:      []Network{{Name: "lan", Address: netip.MustParsePrefix("192.168.1.254/24")}, {Name: "wan1"}},
		Uplinks: map[string]sdewan.Uplink{
			"wan1": {
				Gateway:  netip.MustParseAddr("198.51.100.1"),
				TrackIPs: []netip.Addr{netip.MustParseAddr("192.0.2.80")},
			},
		},
	}
}

// The annotations of the pods are what the CNF's agent, the controller and the network plugin read:
// whatever one of them parses must be there.
func TestAnnotationsAreRead(t *testing.T) {
	c := edge()
	require.NoError(t, c.Validate())
	d, err := c.Deployment()
	require.NoError(t, err)
	annotations := d.Spec.Template.Annotations

	attached, err := sdewan.ParseAttachments(annotations[sdewan.NetworksAnnotation])
	require.NoError(t, err)
	require.Equal(t, []sdewan.Attachment{
		{Network: "lan", Device: "net0", Address: netip.MustParsePrefix("192.168.1.254/24")},
		{Network: "wan1", Device: "net1", Gateway: netip.MustParseAddr("198.51.100.1")},
	}, attached)
	uplinks, err := sdewan.ParseUplinks([]byte(annotations[sdewan.UplinksAnnotation]))
	require.NoError(t, err)
	require.Equal(t, c.Uplinks["wan1"].TrackIPs, uplinks["wan1"].TrackIPs)
	require.JSONEq(t,
		`[{"name": "lan", "interface": "net0", "ips": ["192.168.1.254/24"]}, {"name": "wan1", "interface": "net1"}]`,
		annotations[sdewan.MultusAnnotation])

	c.Plugin = OVN4NFV
	d, err = c.Deployment()
	require.NoError(t, err)
	require.JSONEq(t, `[{"name": "ovn-networkobj"}]`, d.Spec.Template.Annotations[sdewan.MultusAnnotation],
		"as the proposal has it")
	var nfn struct{ Type string }
	require.NoError(t, json.Unmarshal([]byte(d.Spec.Template.Annotations[sdewan.NetworksAnnotation]), &nfn))
	require.Equal(t, "ovn4nfv", nfn.Type)
}

// Rules, the controller and the webhooks find the CNF and its Secrets by labels.
func TestDeploymentIsACNF(t *testing.T) {
	d, err := edge().Deployment()
	require.NoError(t, err)
	require.Equal(t, "cnf-1", d.Labels[sdewan.PurposeLabel])
	require.Equal(
		t,
		map[string]string{
			sdewan.PurposeLabel: "cnf-1",
			sdewan.AccountLabel: "edge-account",
			sdewan.CertLabel:    "edge-cert",
		},
		d.Spec.Template.Labels,
	)
	require.Equal(t, "edge-account", edge().Account("x").GetName())
	require.Equal(t, "edge-cert", edge().Certificate(nil, nil, nil).GetName())

	pod := d.Spec.Template.Spec
	probe, err := json.Marshal(pod.Containers[0].ReadinessProbe)
	require.NoError(t, err)
	require.JSONEq(t,
		`{"failureThreshold": 5, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "initialDelaySeconds": 5, "periodSeconds": 5, "successThreshold": 1, "timeoutSeconds": 1}`,
		string(probe), "as the proposal has it")
	require.False(t, *pod.AutomountServiceAccountToken, "it asks no API server")
	require.Nil(t, pod.Containers[0].SecurityContext.Privileged)
	require.False(t, pod.HostNetwork)
	require.ElementsMatch(t, []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"},
		pod.Containers[0].SecurityContext.Capabilities.Add)
}

// Two pods with the same address would take each other's packets, also while one replaces the
// other.
func TestFixedAddresses(t *testing.T) {
	c := edge()
	d, err := c.Deployment()
	require.NoError(t, err)
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, d.Spec.Strategy.Type)

	c.Replicas = 2
	require.EqualError(t, c.Validate(),
		`network "lan": 2 pods cannot all have the address 192.168.1.254/24: omit it, and let the network plugin choose`)

	c.Networks[0].Address = netip.Prefix{}
	require.NoError(t, c.Validate())
	d, err = c.Deployment()
	require.NoError(t, err)
	require.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, d.Spec.Strategy.Type)
}

// A CNF leaves a node that is lost long before other pods do; several pods are on different nodes,
// and are drained one after the other.
func TestLostNode(t *testing.T) {
	c := edge()
	d, err := c.Deployment()
	require.NoError(t, err)
	require.Len(t, d.Spec.Template.Spec.Tolerations, 2)
	for _, toleration := range d.Spec.Template.Spec.Tolerations {
		require.EqualValues(t, 10, *toleration.TolerationSeconds, toleration.Key)
	}
	require.Empty(t, d.Spec.Template.Spec.TopologySpreadConstraints)
	require.Nil(t, c.Disruptions(), "it would keep the only pod from being moved")

	c.Replicas = 2
	d, err = c.Deployment()
	require.NoError(t, err)
	require.Equal(t, d.Spec.Selector, d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector)
	require.Equal(t, d.Spec.Selector, c.Disruptions().Spec.Selector)
	require.Equal(t, 1, c.Disruptions().Spec.MaxUnavailable.IntValue())
}

// A container that restarts in its pod finds what the CNF held: the network of the pod goes on
// forwarding, and without that, the first plan would open the firewall, and send packets for
// tunnels in clear, until the controller has written everything again. Keys are in memory, not on
// disks.
func TestHostileContainerRestart(t *testing.T) {
	d, err := edge().Deployment()
	require.NoError(t, err)
	pod := d.Spec.Template.Spec
	require.Contains(t, pod.Containers[0].Args, "--state-file=/var/lib/sdewan/state.json")
	i := slices.IndexFunc(pod.Containers[0].VolumeMounts,
		func(m corev1.VolumeMount) bool { return m.MountPath == "/var/lib/sdewan" && !m.ReadOnly })
	require.GreaterOrEqual(t, i, 0)
	j := slices.IndexFunc(pod.Volumes,
		func(v corev1.Volume) bool { return v.Name == pod.Containers[0].VolumeMounts[i].Name })
	require.Equal(t, corev1.StorageMediumMemory, pod.Volumes[j].EmptyDir.Medium)
}

// A CNF has as many networks as its agent accepts, of which as many are uplinks as marks can tell
// apart.
func TestManyNetworks(t *testing.T) {
	c := edge()
	c.Networks = nil
	c.Uplinks = map[string]sdewan.Uplink{}
	for i := range sdewan.MaxAttachments {
		c.Networks = append(c.Networks, Network{Name: fmt.Sprint("n", i)})
	}
	c.Uplinks["n58"] = sdewan.DefaultUplink
	require.NoError(t, c.Validate())
	annotations, err := c.annotations()
	require.NoError(t, err)
	_, err = sdewan.ParseNetworks(annotations[sdewan.NetworksAnnotation])
	require.NoError(t, err, "the CNF can have that many")
	c.Uplinks["n59"] = sdewan.DefaultUplink
	require.EqualError(t, c.Validate(),
		`uplink "n59": only the first 59 networks can be uplinks: list it earlier in --networks`)
	delete(c.Uplinks, "n59")
	c.Networks = append(c.Networks, Network{Name: "more"})
	require.EqualError(t, c.Validate(), "--networks: 61 networks are too many: a CNF has at most 60")
}

// An image has a name that a kubelet can pull.
func TestImages(t *testing.T) {
	for _, image := range []string{
		"UPPER/Case",
		"a b",
		"x:y:z",
		"http://registry.example/subctl",
		"registry.example/subctl:",
		`"x"`,
		strings.Repeat("x", 600),
	} {
		require.ErrorContains(t, Options{Image: image, Replicas: 1}.Validate(), "is not the name of an image", image)
		c := edge()
		c.Image = image
		require.ErrorContains(t, c.Validate(), "is not the name of an image", image)
	}
	for _, image := range []string{
		"",
		"subctl",
		"subctl:v1",
		"registry.example:5000/a/b:V1",
		"registry.example/subctl@sha256:" + strings.Repeat("a", 64),
	} {
		require.NoError(t, Options{Image: image, Replicas: 1}.Validate(), image)
	}
}
