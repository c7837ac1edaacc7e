package join

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// The oldest supported versions of Kubernetes. The broker separates its members with
// ValidatingAdmissionPolicies, which are stable since 1.30. A member needs server-side
// apply, and the pod security labels of 1.25.
const (
	oldestMember = "1.25"
	oldestBroker = "1.30"
)

// checkVersions refuses versions of Kubernetes that are too old.
func checkVersions(r request) ([]string, error) {
	return nil, errors.Join(
		checkVersion("the cluster at "+r.member.URL, r.member.Version, oldestMember),
		checkVersion("the broker at "+r.broker.URL, r.broker.Version, oldestBroker))
}

func checkVersion(where, is, oldest string) error {
	v, err := version.ParseGeneric(is)
	if err != nil {
		return fmt.Errorf("%s reports the version %q, which is not a version of Kubernetes", where, is)
	}
	if !v.AtLeast(version.MustParseGeneric(oldest)) {
		return fmt.Errorf("%s runs Kubernetes %s: upgrade it to %s or later", where, is, oldest)
	}
	return nil
}
