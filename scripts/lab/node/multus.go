package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"subctl/lab/plan"
)

const (
	multusConfig   = "multus.json"
	multusConfFile = "/etc/cni/net.d/00-multus.conf" // first by name: containerd uses this one
)

// multus is the configuration of Multus, the thin plugin: it connects a pod as the node's CNI does,
// and then to each network that the pod's annotation names. It runs in the node's namespaces, as
// all plugins do, so it finds the plugins and the kubeconfig there. The CNI's configuration is in
// it ("delegates"), not only named ("clusterNetwork"): Multus 4.2.3 forgets host-local's ranges of
// the latter when a pod ends.
func multus(n plan.Node) string {
	return fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": "multus", "type": "multus", "capabilities": {"portMappings": true},
 "kubeconfig": "%s/multus.conf", "binDir": %q, "cniDir": "/var/lib/cni/multus", "delegates": [%s]}
`,
		configDir,
		binDir,
		cni(n),
	)
}

// settleMultus makes Multus the plugin that containerd calls, if the cluster has it.
func settleMultus() error {
	config, err := os.ReadFile(filepath.Join(configDir, multusConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(multusConfFile, config, 0o644)
}
