package cmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
)

// The broker keeps whether clusters that join have service discovery until a flag changes it.
func TestDeployBrokerServiceDiscovery(t *testing.T) {
	h := newHub(t)
	for _, test := range []struct {
		args []string
		want *bool
	}{
		{nil, nil},
		{[]string{"--service-discovery=false"}, new(false)},
		{nil, new(false)},
		{[]string{"--service-discovery"}, new(true)},
		{nil, new(true)},
		{[]string{"--components", "connectivity"}, new(false)},
		{[]string{"--components", "service-discovery,connectivity", "--service-discovery"}, new(true)},
	} {
		h.done(t, append([]string{"deploy-broker"}, test.args...)...)
		b := &v1alpha1.Broker{}
		key := client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: v1alpha1.BrokerName}
		require.NoError(t, h.client.Get(t.Context(), key, b))
		require.Equal(t, test.want, b.Spec.ServiceDiscoveryEnabled, test.args)
		require.Equal(t, []string{broker.Connectivity}, b.Spec.Components)
		file, err := broker.ReadOldJoinFile(broker.JoinFileName, nil)
		require.NoError(t, err)
		has := test.want == nil || *test.want
		require.Equal(t, has, file.ServiceDiscovery, "for Submariner's tools")
		shown := h.run(t, nil, "show", "brokers", "-o", "yaml").stdout
		require.Equal(t, has, strings.Contains(shown, "  - service-discovery\n"), shown)
	}
}
