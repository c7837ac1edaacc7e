package cmd

import (
	"errors"
	"fmt"
	"io"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/internal/cli"
)

// check returns all mistakes on the command line. It contacts no cluster.
func (o *deployBrokerOptions) check(stdin io.Reader) error {
	errs := []error{o.invite.check(), o.checkComponents()}
	o.render = broker.Options{Namespace: o.invite.namespace, Components: o.components, CableDriver: o.cableDriver, DefaultPolicy: cable.Canonical(o.cableDriver)}
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
		errs = append(errs, fmt.Errorf("--policies-from %q is not a value: use %s or %s", o.policiesFrom, v1alpha1.PoliciesFromMembers, v1alpha1.PoliciesFromBroker))
	}
	if o.pskFrom == cli.StdStream && o.signingFrom == cli.StdStream {
		errs = append(errs, errors.New("--ipsec-psk-from and --signing-key-from both read stdin: omit --signing-key-from, the file of --ipsec-psk-from is used for both"))
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

func (o *deployBrokerOptions) checkComponents() error {
	var errs []error
	for _, name := range o.components {
		switch name {
		case broker.Connectivity:
		case broker.ServiceDiscovery:
			errs = append(errs, fmt.Errorf("component %s is not implemented in this version: omit it", name))
		default:
			errs = append(errs, fmt.Errorf("unknown component %q: use %s", name, broker.Connectivity))
		}
	}
	if !slices.Contains(o.components, broker.Connectivity) && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("no component is specified: use %s", broker.Connectivity))
	}
	return errors.Join(errs...)
}
