package v1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestCheckLabels(t *testing.T) {
	require.NoError(t,
		CheckLabels("--labels", map[string]string{"site": "cloud", "example.com/tier": "", "submariner": "x"}))
	require.EqualError(
		t,
		CheckLabels("--labels", map[string]string{"a b": "c", "k": "v w", "submariner-io/clusterID": "east"}),
		strings.Join([]string{
			`--labels: "a b" is not a valid name of a label: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			`--labels: "v w" is not a valid value of label "k": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			`--labels: label "submariner-io/clusterID" is reserved: the agents use labels that begin with submariner-io/ or submariner.io/; choose another name`,
		}, "\n"),
	)
}

func TestFormatLabels(t *testing.T) {
	labels := map[string]string{"b": "2", "a": "", "example.com/c": "3"}
	require.Equal(t, "a=,b=2,example.com/c=3", FormatLabels(labels))
	require.Equal(t, labels, ParseLabels(FormatLabels(labels)))
	require.Empty(t, FormatLabels(nil))
	require.Empty(t, ParseLabels(""))
}

// The Lease of a node has a valid name, which no other node has.
func TestNodeLease(t *testing.T) {
	require.Equal(t, "submariner-gateway-lock-gw-1", NodeLease("gw-1"))
	seen := map[string]string{}
	for n := 200; n <= validation.DNS1123SubdomainMaxLength; n++ {
		for _, end := range []string{"a", "b"} {
			node := strings.Repeat("n.", 127)[:n-1] + end
			name := NodeLease(node)
			require.Empty(t, validation.IsDNS1123Subdomain(name), "%d", n)
			require.Empty(t, seen[name], "%d", n)
			seen[name] = node
		}
	}
}
