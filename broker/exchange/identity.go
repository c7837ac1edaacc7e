package exchange

import (
	"cmp"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker/trust"
	"subctl/internal/prefix"
)

// Identity holds the keys and the grant with which a cluster signs and verifies.
type Identity struct {
	Key           trust.Key       // of this cluster
	Grant         string          // of this cluster, signed by the administrator
	Administrator trust.PublicKey // pinned
}

// check returns the grant of cluster id, or what is wrong with its identity.
func (i Identity) check(id string) (trust.Grant, error) {
	if i.Key.IsZero() {
		return trust.Grant{}, errors.New("this cluster has no signing key")
	}
	g, err := i.Administrator.Grant(i.Grant)
	switch {
	case err != nil:
		return g, fmt.Errorf("this cluster: %w", err)
	case g.Cluster != id:
		return g, fmt.Errorf("the grant of this cluster is of cluster %q, not %q", g.Cluster, id)
	case !g.Whole:
		return g, errors.New("the grant of this cluster does not list its clustersets")
	case g.Key != i.Key.Public():
		return g, errors.New("the grant of this cluster is for another signing key")
	}
	return g, nil
}

// exceeds returns what in an object the grant of its cluster does not cover, or "".
func (k *Kind) exceeds(o client.Object, g trust.Grant) string {
	if k.Named == nil {
		return ""
	}
	return cmp.Or(k.exceedsNetworks(o, g), k.exceedsNamespaces(o, g))
}

// exceedsNetworks returns which of an object's networks a grant does not cover, or "".
func (k *Kind) exceedsNetworks(o client.Object, g trust.Grant) string {
	if k.Named.Networks == nil {
		return ""
	}
	for _, text := range k.Named.Networks(o) {
		n, err := prefix.Parse(text)
		if err != nil || !g.Covers(n) {
			return fmt.Sprintf("network %.60s is not in the grant of cluster %s", text, g.Cluster)
		}
	}
	return ""
}

// exceedsNamespaces returns a namespace from which an object exports and a grant does not allow it,
// or "".
func (k *Kind) exceedsNamespaces(o client.Object, g trust.Grant) string {
	if k.Named.Namespaces == nil {
		return ""
	}
	for _, ns := range k.Named.Namespaces(o) {
		if !g.MayExport(ns) {
			return fmt.Sprintf(
				"the grant of cluster %s allows no exports from namespace %.63q: "+
					"delete the ServiceExports there, or allow it with subctl join --export-namespaces in that cluster",
				g.Cluster,
				ns,
			)
		}
	}
	return ""
}
