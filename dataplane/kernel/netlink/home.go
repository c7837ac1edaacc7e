//go:build linux

package netlink

import "fmt"

// Home is the name of the network namespace to which sockets and objects belong, as Namespace
// returns it.
type Home string

// Check returns an error if the calling thread is in another network namespace: what it starts or
// opens would then concern that one.
func (h Home) Check() error {
	ns, err := Namespace()
	if err == nil && ns != string(h) {
		err = fmt.Errorf("the thread is in network namespace %s, and the objects are in %s", ns, h)
	}
	return err
}
