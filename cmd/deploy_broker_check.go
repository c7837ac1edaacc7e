package cmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/internal/cli"
	"subctl/internal/words"
)

// check returns all mistakes on the command line. It contacts no cluster.
func (o *deployBrokerOptions) check(stdin io.Reader) error {
	errs := []error{o.invite.check()}
	o.render = broker.Options{
		Namespace: o.invite.namespace, Components: []string{broker.Connectivity}, CableDriver: o.cableDriver,
		DefaultPolicy: cable.Canonical(o.cableDriver),
	}
	errs = append(errs, o.checkComponents())
	for _, set := range slices.Compact(slices.Sorted(slices.Values(o.sets))) {
		if errs = append(errs, broker.CheckClusterSet(set)); set != submarinerv1.DefaultClusterSet {
			o.render.Sets = append(o.render.Sets, set)
		}
	}
	errs = append(errs, o.checkGlobalnet())
	if _, err := drivers.Parse(o.cableDriver); err != nil {
		errs = append(errs, fmt.Errorf("--cable-driver: %w", err))
	}
	switch from := v1alpha1.PoliciesFrom(o.policiesFrom); from {
	case v1alpha1.PoliciesFromMembers: // also without a value
	case v1alpha1.PoliciesFromBroker:
		o.render.PoliciesFrom = from
	default:
		errs = append(
			errs,
			fmt.Errorf("--policies-from %q is not a value: use %s or %s", o.policiesFrom, v1alpha1.PoliciesFromMembers,
				v1alpha1.PoliciesFromBroker),
		)
	}
	if o.pskFrom == cli.StdStream && o.signingFrom == cli.StdStream {
		errs = append(
			errs,
			errors.New(
				"--ipsec-psk-from and --signing-key-from both read stdin: omit --signing-key-from, the file of --ipsec-psk-from is used for both"),
		)
	} else {
		var err, err2 error
		o.from.PSKFrom, err = optionalJoinFile(o.pskFrom, stdin)
		o.from.SigningKeyFrom, err2 = optionalJoinFile(o.signingFrom, stdin)
		errs = append(errs, err, err2)
	}
	if o.flags.Changed("output") && !o.guard.DryRun {
		errs = append(errs, errors.New("--output requires --dry-run"))
	}
	return errors.Join(errs...)
}

// checkComponents returns the mistakes in the components, and chooses whether clusters that join
// have service discovery: as --service-discovery or, in its place, --components specifies.
func (o *deployBrokerOptions) checkComponents() error {
	var errs []error
	for _, name := range o.components {
		if name != broker.Connectivity && name != broker.ServiceDiscovery {
			errs = append(errs, fmt.Errorf("unknown component %q: use %s", name, words.List(allComponents)))
		}
	}
	if !slices.Contains(o.components, broker.Connectivity) && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("--components lacks %s, which all clusters install: add it",
			broker.Connectivity))
	}
	listed := slices.Contains(o.components, broker.ServiceDiscovery)
	switch named := o.flags.Changed("components"); {
	case named && o.flags.Changed("service-discovery") && listed != o.serviceDiscovery:
		errs = append(errs, fmt.Errorf("--components %s contradicts --service-discovery=%t: omit one of them",
			strings.Join(o.components, ","), o.serviceDiscovery))
	case named:
		o.render.ServiceDiscovery = &listed
	case o.flags.Changed("service-discovery"):
		o.render.ServiceDiscovery = &o.serviceDiscovery
	}
	return errors.Join(errs...)
}

// allComponents are the values of --components.
var allComponents = []string{broker.Connectivity, broker.ServiceDiscovery}
