package join

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldestKubernetes is the oldest supported version of Kubernetes. The broker separates its
// members, and a member its nodes, with ValidatingAdmissionPolicies, which are stable since
// 1.30. Since then, too, the token of a pod names the node of the pod.
const oldestKubernetes = "1.30"

// checkVersions refuses versions of Kubernetes that are too old.
func checkVersions(r request) ([]string, error) {
	return nil, errors.Join(
		checkVersion("the cluster at "+r.member.URL, r.member.Version, oldestKubernetes),
		checkVersion("the broker at "+r.broker.URL, r.broker.Version, oldestKubernetes))
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
