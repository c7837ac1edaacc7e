package install

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"subctl/sdewan"
)

// edge is a CNF with a LAN and an uplink.
func edge() CNF {
	return CNF{
		Name: "edge", Namespace: "branch", Purpose: "cnf-1", Image: "example/subctl:v1", Replicas: 1, Plugin: Multus, AccountSecret: "edge-account", CertSecret: "edge-cert",
		Networks: []Network{{Name: "lan", Address: netip.MustParsePrefix("192.168.1.254/24")}, {Name: "wan1"}},
		Uplinks:  map[string]sdewan.Uplink{"wan1": {Gateway: netip.MustParseAddr("198.51.100.1"), TrackIPs: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}},
	}
}

// The annotations of the pods are what the CNF's agent, the controller and the network plugin read: whatever one of them parses must be there.
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
	require.JSONEq(t, `[{"name": "lan", "interface": "net0", "ips": ["192.168.1.254/24"]}, {"name": "wan1", "interface": "net1"}]`, annotations[sdewan.MultusAnnotation])

	c.Plugin = OVN4NFV
	d, err = c.Deployment()
	require.NoError(t, err)
	require.JSONEq(t, `[{"name": "ovn-networkobj"}]`, d.Spec.Template.Annotations[sdewan.MultusAnnotation], "as the seed has it")
	var nfn struct{ Type string }
	require.NoError(t, json.Unmarshal([]byte(d.Spec.Template.Annotations[sdewan.NetworksAnnotation]), &nfn))
	require.Equal(t, "ovn4nfv", nfn.Type)
}

// Rules, the controller and the webhooks find the CNF and its Secrets by labels.
func TestDeploymentIsACNF(t *testing.T) {
	d, err := edge().Deployment()
	require.NoError(t, err)
	require.Equal(t, "cnf-1", d.Labels[sdewan.PurposeLabel])
	require.Equal(t, map[string]string{sdewan.PurposeLabel: "cnf-1", sdewan.AccountLabel: "edge-account", sdewan.CertLabel: "edge-cert"}, d.Spec.Template.Labels)
	require.Equal(t, "edge-account", edge().Account("x").GetName())
	require.Equal(t, "edge-cert", edge().Certificate(nil, nil, nil).GetName())

	pod := d.Spec.Template.Spec
	require.False(t, *pod.AutomountServiceAccountToken, "it asks no API server")
	require.Nil(t, pod.Containers[0].SecurityContext.Privileged)
	require.False(t, pod.HostNetwork)
	require.ElementsMatch(t, []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"}, pod.Containers[0].SecurityContext.Capabilities.Add)
}

// Two pods with the same address would take each other's packets, also while one replaces the other.
func TestFixedAddresses(t *testing.T) {
	c := edge()
	d, err := c.Deployment()
	require.NoError(t, err)
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, d.Spec.Strategy.Type)

	c.Replicas = 2
	require.EqualError(t, c.Validate(), `network "lan": 2 pods cannot all have the address 192.168.1.254/24: omit it, and let the network plugin choose`)

	c.Networks[0].Address = netip.Prefix{}
	require.NoError(t, c.Validate())
	d, err = c.Deployment()
	require.NoError(t, err)
	require.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, d.Spec.Strategy.Type)
}

// A container that restarts in its pod finds what the CNF held: the network of the pod goes on forwarding, and without that, the first plan would open
// the firewall, and send packets for tunnels in clear, until the controller has written everything again. Keys are in memory, not on disks.
func TestHostileContainerRestart(t *testing.T) {
	d, err := edge().Deployment()
	require.NoError(t, err)
	pod := d.Spec.Template.Spec
	require.Contains(t, pod.Containers[0].Args, "--state-file=/var/lib/sdewan/state.json")
	i := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/var/lib/sdewan" && !m.ReadOnly })
	require.GreaterOrEqual(t, i, 0)
	j := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == pod.Containers[0].VolumeMounts[i].Name })
	require.Equal(t, corev1.StorageMediumMemory, pod.Volumes[j].EmptyDir.Medium)
}
