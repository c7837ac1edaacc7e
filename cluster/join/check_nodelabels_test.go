package join_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// k3s and RKE2 apply the labels of their configuration as kubelets, which may not change those of
// gateway nodes.
func TestLabelsInTheConfigurationOfNodes(t *testing.T) {
	warning := func(program, key string) string {
		return "the configuration of " + program + " on n1 sets the label " + key +
			": if the label of the Node is another one, or is removed, " +
			program +
			" cannot start the network of the node when it starts again; set the label with kubectl label node, and remove it from node-label in the configuration"
	}
	for _, test := range []struct{ name, annotation, args, want string }{
		{
			"k3s",
			"k3s.io/node-args",
			`["agent","--node-label","submariner.io/gateway=true"]`,
			warning("k3s", "submariner.io/gateway"),
		},
		{
			"RKE2",
			"rke2.io/node-args",
			`["server","--node-label","a=b","--node-label","gateway.submariner.io/public-ip=192.0.2.1"]`,
			warning("rke2", "gateway.submariner.io/public-ip"),
		},
		{
			"several in one value",
			"k3s.io/node-args",
			`["agent","--node-label","a=b,submariner.io/gateway=true"]`,
			warning("k3s", "submariner.io/gateway"),
		},
		{"another label", "k3s.io/node-args", `["agent","--node-label","submariner.io/gateway-zone=a"]`, ""},
		{"another option", "k3s.io/node-args", `["agent","--node-taint","submariner.io/gateway=true:NoSchedule"]`, ""},
		{"no arguments", "k3s.io/node-args", `submariner.io/gateway`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.f.Nodes[0].Annotations = map[string]string{test.annotation: test.args}
			p, err := s.plan()
			require.NoError(t, err)
			texts := slices.DeleteFunc(slices.Clone(p.Warnings),
				func(text string) bool { return !strings.Contains(text, "the configuration of ") })
			if test.want == "" {
				require.Empty(t, texts)
			} else {
				require.Equal(t, []string{test.want}, texts)
			}
		})
	}
}
