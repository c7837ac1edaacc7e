package cluster

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Platform describes what the objects depend on besides the Submariner object. The zero Platform is
// a plain cluster.
type Platform struct {
	// SCC reports whether the API server admits pods by SecurityContextConstraints, as OpenShift
	// does.
	SCC bool
	// BrokenGateways is the number of gateway nodes that are not Ready.
	BrokenGateways int
}

// SCC names SecurityContextConstraints that OpenShift has by default.
type SCC string

// The SecurityContextConstraints of our pods.
const (
	SCCPrivileged SCC = "privileged" // the network of the node, capabilities, paths of the node
	SCCNonRoot    SCC = "nonroot-v2" // any user ID except 0, no privileges
)

const sccGroup = "security.openshift.io"

// HasSCC reports whether an API server has SecurityContextConstraints.
func HasSCC(c client.Client) (bool, error) {
	_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: sccGroup, Kind: "SecurityContextConstraints"})
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading which kinds the API server serves: %w", err)
	}
	return true, nil
}

// Use returns the rule of a Role that lets pods of its ServiceAccount be admitted by constraints;
// none if the cluster has no constraints.
func (p Platform) Use(constraints SCC) []rbacv1.PolicyRule {
	if !p.SCC {
		return nil
	}
	return []rbacv1.PolicyRule{
		byName(rule([]string{sccGroup}, []string{"securitycontextconstraints"}, "use"), string(constraints)),
	}
}
