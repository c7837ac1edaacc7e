package mesh_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// However much members announce, a gateway can write its report, and what it says of cables that
// carry packets is complete as long as there is room.
func TestHostileReportSize(t *testing.T) {
	const members = 200
	const repeated = 20 // parameters of an endpoint
	var objs []client.Object
	for i := range members {
		id := fmt.Sprintf("m%03d", i)
		meta := metav1.ObjectMeta{
			Name:        id,
			Namespace:   submarinerv1.OperatorNamespace,
			Labels:      map[string]string{submarinerv1.ClusterIDLabel: id},
			Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
		}
		e := &submarinerv1.Endpoint{ObjectMeta: meta, Spec: submarinerv1.EndpointSpec{
			ClusterID:     id,
			CableName:     "cable-" + id,
			Hostname:      "gw",
			PrivateIP:     fmt.Sprintf("192.168.%d.1", i),
			Backend:       "vxlan",
			BackendConfig: largeConfig(),
		}}
		for j := range 128 {
			n := (i*128 + j) * 16
			e.Spec.Subnets = append(e.Spec.Subnets, fmt.Sprintf("10.%d.%d.%d/28", 120+n>>16, n>>8&255, n&255))
		}
		c := &submarinerv1.Cluster{
			ObjectMeta: meta,
			Spec: submarinerv1.ClusterSpec{
				ClusterID:   id,
				ClusterCIDR: e.Spec.Subnets[:1],
				ServiceCIDR: e.Spec.Subnets[1:2],
			},
		}
		objs = append(objs, e, c)
	}
	s := withoutEndpoints(t, objs...)
	s.Standing = role.Standing{Active: true}
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.CableName == westCable {
			e.Spec.BackendConfig = largeConfig()
		}
	}
	s.Memory.Using = map[string]role.Using{westCable: {Cluster: "west", Driver: "vxlan", Device: "vxlan-tunnel"}}
	gw, _ := reported(t, s)
	require.Len(t, gw.Status.Connections, members+1)
	data, err := json.Marshal(gw)
	require.NoError(t, err)
	require.Less(t, len(data), 1400<<10)
	complete := 0
	for _, c := range gw.Status.Connections {
		if len(c.Endpoint.BackendConfig) > 0 {
			complete++
		}
		if c.Endpoint.CableName == westCable {
			require.True(t, *c.Member)
			require.Len(t, c.Endpoint.BackendConfig, repeated)
		}
	}
	require.Greater(t, complete, 1, "no more is left out than necessary")
	require.Less(t, complete, members)
}

// largeConfig returns parameters of an endpoint of which a report repeats all.
func largeConfig() map[string]string {
	out := map[string]string{}
	for i := range 20 {
		out[fmt.Sprintf("key-%02d", i)] = strings.Repeat("<", 100)
	}
	return out
}
