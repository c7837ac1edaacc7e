// Package policy decides which cable a pair of clusters gets. Both ends compute
// it from the same objects, so both come to the same answer.
package policy

import "fmt"

// Side is one end of a pair: a cluster and the cable driver it offers.
type Side struct {
	Cluster string
	Driver  string
}

// Resolve returns the driver that joins two clusters. Both must offer it: there
// is no silent downgrade to something else, so the error says who offers what.
func Resolve(a, b Side) (string, error) {
	if a.Driver == b.Driver {
		return a.Driver, nil
	}
	if b.Cluster < a.Cluster {
		a, b = b, a
	}
	return "", fmt.Errorf("cluster %s offers only %s, cluster %s only %s: join both with one --cable-driver", a.Cluster, a.Driver, b.Cluster, b.Driver)
}
