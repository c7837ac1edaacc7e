package v1

import (
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// OwnerID returns the ID of the cluster that owns o, from ClusterIDLabel, or BrokerID.
// ok is false if o has no such label: o was then created where it was found, in the
// cluster or on the broker.
func OwnerID(o metav1.Object) (id string, ok bool) {
	id, ok = o.GetLabels()[ClusterIDLabel]
	return id, ok
}

// MakerOf returns the ID of the cluster that created o, or BrokerID. o was found in cluster here,
// or on the broker if here is BrokerID. It returns "" if the label of a copy has no value.
func MakerOf(o metav1.Object, here string) string {
	if id, ok := OwnerID(o); ok {
		return id
	}
	return here
}

// IsCopy reports whether o, found in a cluster, is a copy of an object that was created
// elsewhere: only copies carry ClusterIDLabel.
func IsCopy(o metav1.Object) bool {
	_, ok := OwnerID(o)
	return ok
}

// CheckClusterID returns an error if id cannot be a cluster ID.
func CheckClusterID(id string) error {
	if len(validation.IsDNS1123Label(id)) > 0 {
		return fmt.Errorf("cluster ID %q is not a DNS-1123 label: use at most 63 lower case letters, digits and '-', "+
			"with a letter or digit at both ends", id)
	}
	if reservedID.MatchString(id) {
		return fmt.Errorf(
			"cluster ID %q ends like the names of objects on a broker: choose another ID, which does not end in "+
				"-submariner-k8s-broker-cluster, -token-invited, or -token- and 32 hexadecimal digits",
			id,
		)
	}
	return nil
}

// ReservedIDs is a regular expression for what no cluster ID may end with. The name of an object on
// a broker consists of "cluster-", the ID and, for some objects, one of these ends. Admission
// policies derive the cluster from the name: with such an ID, a name could be read in two ways.
const ReservedIDs = `-(submariner-k8s-broker-cluster|token-(invited|[0-9a-f]{32}))$`

var reservedID = regexp.MustCompile(ReservedIDs)
