package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// Check returns all errors in the spec of a policy, joined, each with its field; nil if the
// policy is valid. A valid policy is within the limits of the schema, once its drivers are
// replaced by their canonical names. Check ignores the rules in force. For invalid policies in
// a Book, see the package comment.
func Check(p *v1alpha1.CablePolicies) error { return check(p, drivers.All()) }

func check(p *v1alpha1.CablePolicies, known []cable.Driver) error {
	errs := []error{CheckName(p.SharedName())}
	if len(p.ConnectionPolicies) == 0 {
		errs = append(errs, errors.New("spec: a policy needs at least one rule"))
	}
	if n := len(p.ConnectionPolicies); n > v1alpha1.MaxRules {
		return errors.Join(
			append(errs, fmt.Errorf("spec: a policy has at most %d rules, this one has %d", v1alpha1.MaxRules, n))...)
	}
	for i := range p.ConnectionPolicies {
		errs = append(errs, checkBounds(p.ConnectionPolicies[i], i)...)
		_, mistakes := readRule(p, p.ConnectionPolicies, i, known)
		errs = append(errs, mistakes...)
	}
	return errors.Join(errs...)
}

// checkBounds returns the errors for fields of rule i, counted from 0, that exceed the limits of
// the schema.
func checkBounds(spec v1alpha1.CablePolicySpec, i int) (errs []error) {
	most := func(field string, n, limit int) {
		if n > limit {
			errs = append(errs, fmt.Errorf("spec[%d].%s: %d entries, at most %d are allowed", i, field, n, limit))
		}
	}
	for _, s := range []struct {
		name     string
		selector v1alpha1.ClusterSelector
	}{{"leftClusterSelector", spec.LeftClusterSelector}, {"rightClusterSelector", spec.RightClusterSelector}} {
		most(s.name+".matchLabels", len(s.selector.MatchLabels), v1alpha1.MaxRequirements)
		most(s.name+".matchExpressions", len(s.selector.MatchExpressions), v1alpha1.MaxRequirements)
		for j, e := range s.selector.MatchExpressions {
			most(fmt.Sprintf("%s.matchExpressions[%d].values", s.name, j), len(e.Values), v1alpha1.MaxValues)
		}
	}
	o := spec.CableOptions
	if o == nil {
		return errs
	}
	most("options.data", len(o.Data), v1alpha1.MaxOptionsData)
	if o.Encryption != "" && o.Encryption != submarinerv1.EncryptionRequired {
		errs = append(
			errs,
			fmt.Errorf("spec[%d].options.encryption: %s is not a value: use %s, or omit it", i,
				quote(string(o.Encryption)), submarinerv1.EncryptionRequired),
		)
	}
	if len(o.Metadata.Name) > 0 && len(validation.IsDNS1123Subdomain(o.Metadata.Name)) > 0 {
		errs = append(
			errs,
			fmt.Errorf(
				"spec[%d].options.metadata.name: %s is not the name of a ConfigMap: use at most 253 lower case letters, digits, '-' and '.'",
				i, quote(o.Metadata.Name)),
		)
	}
	if len(o.Metadata.Namespace) > 0 && len(validation.IsDNS1123Label(o.Metadata.Namespace)) > 0 {
		errs = append(
			errs,
			fmt.Errorf(
				"spec[%d].options.metadata.namespace: %s is not the name of a namespace: use at most 63 lower case letters, digits and '-'",
				i, quote(o.Metadata.Namespace)),
		)
	}
	return errs
}

// CheckName returns an error if name is not a valid name of a policy: a DNS-1123 label.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("metadata.name: a policy needs a name")
	case len(validation.IsDNS1123Label(name)) > 0:
		return fmt.Errorf(
			"metadata.name: %s is not the name of a policy: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
			quote(name))
	}
	return nil
}

// CheckDriver returns an error if there is no cable driver of that name.
func CheckDriver(name string) error {
	_, err := drivers.Parse(name)
	return err
}

// quote quotes untrusted text for a message: limited to 80 bytes, and without control characters.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strconv.Quote(text)
}
