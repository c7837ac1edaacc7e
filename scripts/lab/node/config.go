package node

import (
	"fmt"
	"strings"

	"subctl/lab/cgroup"
	"subctl/lab/plan"
)

// Where things are inside a node.
const (
	binDir    = plan.NodeBin
	configDir = "/etc/kubernetes"
)

// Image is a name built into the lab, loaded into every node when it starts.
const PauseImage = "lab.local/pause:1"

// configs renders the files of /etc/kubernetes.
func configs(n plan.Node, runc string) map[string]string {
	files := map[string]string{
		"kubelet.yaml":    kubelet(n),
		"kube-proxy.yaml": kubeProxy(n),
		"containerd.toml": containerd(runc),
		"resolv.conf":     "nameserver " + n.Addr().Addr().String() + "\n",
	}
	if n.Cluster.Flannel() != "" {
		files[flannelConfig] = n.Cluster.FlannelConfig()
	} else {
		files["cni.conflist"] = cni(n)
	}
	if n.Cluster.Multus {
		files[multusConfig] = multus(n)
	}
	return files
}

func kubelet(n plan.Node) string {
	return strings.NewReplacer("CONFIG", configDir, "CGROUP", cgroup.Path(n.Name()), "NAMESERVER",
		n.Cluster.DNS().String(), "DOMAIN", n.Cluster.Domain()).Replace(
		`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: CONFIG/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: CONFIG/kubelet.crt
tlsPrivateKeyFile: CONFIG/kubelet.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: CGROUP
# Such machines are what the lab is for; the kubelet only frowns.
failCgroupV1: false
failSwapOn: false
# Refuses wrong kernel settings instead of writing them machine-wide; the node shows it the right ones.
protectKernelDefaults: true
# Without CAP_SYS_RESOURCE these two may not be raised.
oomScoreAdj: 0
maxOpenFiles: 20000
clusterDomain: DOMAIN
clusterDNS: ["NAMESERVER"]
resolvConf: CONFIG/resolv.conf
volumePluginDir: /var/lib/kubelet/volumeplugins
enforceNodeAllocatable: []
# The disk is the machine's: it is not for nodes to tidy or to refuse pods over.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "50Mi"}
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: 20
# How often the files of a ConfigMap are compared with it.
syncFrequency: 2s
serializeImagePulls: false
logging: {verbosity: 1}
`,
	)
}

func kubeProxy(n plan.Node) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %s/kube-proxy.conf}
mode: %s
clusterCIDR: %s
hostnameOverride: %s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
# The kernel's connection table is the machine's: leave its size and timeouts alone.
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, configDir, n.Cluster.ProxyMode, n.Cluster.Pods(), n.Name())
}

func containerd(runc string) string {
	return fmt.Sprintf(`version = 3
oom_score = 0
# What this machine has no use or no kernel for: probing them costs time and fills the log.
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.mount-handler.v1.erofs", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing"]
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[1]q
[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE no process may lower its own score, and pods would not start.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[2]q]
    conf_dir = "/etc/cni/net.d"
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %[3]q
      SystemdCgroup = false
`, PauseImage, binDir, binDir+"/"+runc)
}

// cni gives each pod a cable to its node and an address of the node's share. Nothing is
// masqueraded: pods keep their addresses.
func cni(n plan.Node) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "lab", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local",
    "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, n.Pods())
}
