package join

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/words"
)

// checkNodeLabels warns of labels of gateway nodes in the configuration of nodes. k3s and RKE2
// apply them at each start, with the credentials of the kubelet, which may not change them
// (cluster/admission_nodes.go), and start the network of the node when that has worked.
func checkNodeLabels(r request) (warnings []string, err error) {
	for _, program := range []string{"k3s", "rke2"} {
		for _, key := range submarinerv1.GatewayNodeKeys() {
			var nodes []string
			for _, n := range r.member.Nodes {
				if slices.Contains(configuredLabels(n, program), key) {
					nodes = append(nodes, n.Name)
				}
			}
			if len(nodes) == 0 {
				continue
			}
			slices.Sort(nodes)
			warnings = append(
				warnings,
				fmt.Sprintf(
					"the configuration of %s on %s sets the label %s: if the label of the Node is another one, or is removed, "+
						"%s cannot start the network of the node when it starts again; set the label with kubectl label node, and remove it from node-label in the configuration",
					program,
					words.List(nodes),
					key,
					program,
				),
			)
		}
	}
	return warnings, nil
}

// configuredLabels returns the keys of the labels that a node's k3s or RKE2 sets: the values of
// --node-label in an annotation, a JSON list of arguments, where an option and its value are two
// items, also if they come from a configuration file. An annotation that is no such list sets none.
func configuredLabels(n corev1.Node, program string) (keys []string) {
	var args []string
	_ = json.Unmarshal([]byte(n.Annotations[program+".io/node-args"]), &args)
	for i, arg := range args {
		if i == 0 || strings.TrimLeft(args[i-1], "-") != "node-label" {
			continue
		}
		for label := range strings.SplitSeq(arg, ",") {
			key, _, _ := strings.Cut(label, "=")
			keys = append(keys, key)
		}
	}
	return keys
}
