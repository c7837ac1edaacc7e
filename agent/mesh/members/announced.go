package members

import (
	"errors"
	"fmt"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// Announced is an Endpoint and what it announces. The text of an Endpoint is parsed once, when a
// Membership is read: from there on, its networks and addresses are values.
type Announced struct {
	Endpoint *submarinerv1.Endpoint
	// Gateway is what the Endpoint announces; only its valid fields if Err is not nil.
	Gateway cable.Gateway
	// Err is why no node can use the Endpoint; nil if it is sound. Whether it conflicts with the
	// networks of this cluster, or with other gateways, is not known yet.
	Err error
}

// ofThisCluster reads an Endpoint of this cluster.
func ofThisCluster(e *submarinerv1.Endpoint) Announced {
	a := Announced{Endpoint: e}
	a.Err = Guarded(func() error {
		var err error
		a.Gateway, err = cable.Parse(e.Spec)
		return err
	})
	return a
}

// ofAnother reads an Endpoint of another cluster, given the ID of this cluster.
func ofAnother(e *submarinerv1.Endpoint, id string) Announced {
	a := ofThisCluster(e)
	if a.Err != nil {
		return a
	}
	if owner, _ := submarinerv1.OwnerID(e); owner != a.Gateway.Cluster {
		a.Err = fmt.Errorf("it names cluster %q, but cluster %q published it", a.Gateway.Cluster, owner)
	} else if a.Gateway.Cluster == id {
		a.Err = errors.New("it claims this cluster's own ID")
	}
	return a
}
