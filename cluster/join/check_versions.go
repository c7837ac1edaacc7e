package join

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// The oldest Kubernetes we work with. The broker keeps members apart by
// ValidatingAdmissionPolicies, which are stable since 1.30; a member needs
// server-side apply and unprivileged pods with seccomp, as of 1.25, the oldest
// version whose pod security labels we set.
const (
	oldestMember = "1.25"
	oldestBroker = "1.30"
)

// checkVersions refuses a Kubernetes that is too old.
func checkVersions(r request) ([]string, error) {
	return nil, errors.Join(
		checkVersion("the cluster at "+r.member.URL, r.member.Version, oldestMember),
		checkVersion("the broker at "+r.broker.URL, r.broker.Version, oldestBroker))
}

func checkVersion(where, is, oldest string) error {
	v, err := version.ParseGeneric(is)
	if err != nil {
		return fmt.Errorf("%s says that its version is %q, which is not a version of Kubernetes", where, is)
	}
	if !v.AtLeast(version.MustParseGeneric(oldest)) {
		return fmt.Errorf("%s runs Kubernetes %s: upgrade it to %s or later", where, is, oldest)
	}
	return nil
}
