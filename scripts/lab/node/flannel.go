package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	conflistFile  = "/etc/cni/net.d/10-lab.conflist"
	flannelConfig = "net-conf.json"
	subnetFile    = "/run/flannel/subnet.env"
)

// usesFlannel reports whether this node's pods are connected by flannel.
func usesFlannel() bool {
	_, err := os.Stat(filepath.Join(configDir, flannelConfig))
	return err == nil
}

// flannel starts flanneld and configures the CNI with the subnet that flanneld got: so the node is
// Ready when pods can be connected.
func (r *reaper) flannel(node string) error {
	if err := os.Setenv("NODE_NAME", node); err != nil {
		return err
	}
	go r.keep("flanneld", filepath.Join(binDir, "flanneld"), "--kube-subnet-mgr", "--ip-masq",
		"--kubeconfig-file="+filepath.Join(configDir, "flannel.conf"),
		"--net-config-path="+filepath.Join(configDir, flannelConfig))
	for range 600 {
		env, err := os.ReadFile(subnetFile)
		if err == nil {
			conflist, err := bridge(string(env))
			if err != nil {
				return err
			}
			return os.WriteFile(conflistFile, []byte(conflist), 0o644)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("flanneld has no subnet after 60 s: see flanneld.log")
}

// bridge returns the configuration that flannel's own CNI plugin, which is not in the module proxy,
// would hand on to the plugin bridge, given the "delegate" of flannel's manifest and the output of
// flanneld.
func bridge(subnetEnv string) (string, error) {
	value := map[string]string{}
	for line := range strings.Lines(subnetEnv) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		value[name] = v
	}
	subnet, err := netip.ParsePrefix(value["FLANNEL_SUBNET"]) // with the address of the bridge
	if err != nil {
		return "", fmt.Errorf("%s: FLANNEL_SUBNET: %w", subnetFile, err)
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [
  {"type": "bridge", "hairpinMode": true, "isDefaultGateway": true, "isGateway": true, "ipMasq": %t, "mtu": %s, "ipam": {"type": "host-local",
    "ranges": [[{"subnet": %q}]], "routes": [{"dst": %q}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, value["FLANNEL_IPMASQ"] != "true", value["FLANNEL_MTU"], subnet.Masked(), value["FLANNEL_NETWORK"]), nil
}
