package sdewan

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "subctl/api/sdewan/v1alpha1"
)

// A mistake is named by the field of the rule, whatever the CNF calls it.
func TestCheckNamesFieldsOfRules(t *testing.T) {
	host := func(remote string) *batch.IpsecHost {
		h := &batch.IpsecHost{ObjectMeta: metav1.ObjectMeta{Name: "hub"}}
		h.Spec.Remote = remote
		h.Spec.Auth = "psk"
		h.Spec.PreSharedKey = "x"
		h.Spec.Connections = []batch.IpsecHostConnection{{}}
		h.Spec.Connections[0].Name = "a"
		h.Spec.Connections[0].Type = "tunnel"
		h.Spec.Connections[0].Mode = "start"
		return h
	}
	require.NoError(t, Check(host("192.0.2.1")))
	require.EqualError(t, Check(host("192.0.2.300")),
		`remote: "192.0.2.300" is neither an address, nor a DNS name, nor any`)
}
