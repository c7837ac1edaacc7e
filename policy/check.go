package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// Check returns everything that is wrong with a policy, each mistake with the field it
// is in; nil if nothing is. A Book works with a policy that is wrong, too: the package
// comment says how.
func Check(p *v1alpha1.CablePolicies) error { return check(p, drivers.All()) }

func check(p *v1alpha1.CablePolicies, known []cable.Driver) error {
	errs := []error{CheckName(p.SharedName())}
	if len(p.ConnectionPolicies) == 0 {
		errs = append(errs, errors.New("spec: a policy needs at least one rule"))
	}
	for i := range p.ConnectionPolicies {
		_, mistakes := readRule(p, i, known)
		errs = append(errs, mistakes...)
	}
	return errors.Join(errs...)
}

// CheckName says what is wrong with the name of a policy, if anything.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("metadata.name: a policy needs a name")
	case len(validation.IsDNS1123Label(name)) > 0:
		return fmt.Errorf("metadata.name: %s cannot name a policy: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends", quote(name))
	}
	return nil
}

// CheckDriver says that a cable driver is unknown, if it is.
func CheckDriver(name string) error {
	_, err := drivers.Parse(name)
	return err
}

// quote is what somebody else wrote in a message: bounded, and harmless to a terminal.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strconv.Quote(text)
}
