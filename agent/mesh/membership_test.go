package mesh

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
)

// Networks that overlap are a mistake of this cluster: nothing is planned with them.
func TestOverlappingNetworks(t *testing.T) {
	sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: "submariner"}}
	sub.Spec.ClusterID, sub.Spec.ClusterCIDR, sub.Spec.ServiceCIDR = "east", "10.111.0.0/16,10.112.0.0/16", "10.111.7.0/24,10.0.0.0/8"
	_, err := readMembership(NewSnapshot("n1", sub))
	const remedy = ": run subctl join with the right --clustercidr and --servicecidr"
	require.EqualError(t, err, "Submariner.spec.serviceCIDR 10.0.0.0/8 overlaps clusterCIDR 10.111.0.0/16"+remedy+"\n"+
		"Submariner.spec.serviceCIDR 10.0.0.0/8 overlaps clusterCIDR 10.112.0.0/16"+remedy+"\n"+
		"Submariner.spec.serviceCIDR 10.111.7.0/24 overlaps clusterCIDR 10.111.0.0/16"+remedy)
}
