package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// readFile returns the policies of a file, or everything that is wrong with them.
func (o *cablePolicyAdd) readFile() ([]*v1alpha1.CablePolicies, error) {
	if o.name+o.left+o.right+o.driver+o.config != "" {
		return nil, usageError(errors.New("-f takes whole policies from the file: leave out --name, --cable-driver and the like"))
	}
	var data []byte
	var err error
	if o.file == "-" {
		data, err = io.ReadAll(o.In)
	} else {
		data, err = os.ReadFile(o.file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	policies, err := policy.ReadFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	var errs []error
	seen := map[string]bool{}
	for _, p := range policies {
		delete(p.Labels, submarinerv1.ClusterIDLabel) // of an object taken from another cluster
		p.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, Annotations: p.Annotations}
		for _, line := range lines(policy.Check(p)) {
			errs = append(errs, fmt.Errorf("%s: policy %q: %s", o.file, p.Name, line))
		}
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("%s: policy %q is in it twice", o.file, p.Name))
		}
		seen[p.Name] = true
	}
	return policies, errors.Join(errs...)
}

// lines are those of an error with several; none if there is no error.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
