package drivers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// Choice is what a user says about the drivers that a cluster offers.
type Choice struct {
	// Default is that of pairs that no policy decides. Empty: the first of those listed,
	// or drivers.Default if none is.
	Default string
	// Separate are the drivers to offer. None, and no Combined either: all there are.
	Separate []string
	// Combined are those of the one combined cable to offer, such as vxlan and ipsec.
	Combined []string
}

// Fields is what the fields of a Choice are called where the user wrote it.
type Fields struct{ Default, Separate, Combined string }

// Listed returns the drivers that the cluster of a Submariner may offer, as Offered does.
func Listed(s v1alpha1.SubmarinerSpec) ([]cable.Driver, error) {
	return Choice{Default: s.CableDriver, Separate: s.CableDrivers, Combined: s.CombinedCableDrivers}.Offered(Fields{
		Default: "Submariner.spec.cableDriver", Separate: "Submariner.spec.cableDrivers", Combined: "Submariner.spec.combinedCableDrivers",
	})
}

// Offered returns the drivers to offer, the default first. The error says everything
// that is wrong, and in which field.
func (c Choice) Offered(f Fields) ([]cable.Driver, error) {
	var listed []cable.Driver
	var errs []error
	for _, name := range c.Separate {
		d, err := Parse(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Separate, err))
		} else {
			listed = append(listed, d)
		}
	}
	if len(c.Combined) > 0 {
		d, err := combined(c.Combined)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s %w", f.Combined, strings.Join(c.Combined, ","), err))
		} else {
			listed = append(listed, d)
		}
	}
	first, err := c.first(listed)
	if err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", f.Default, err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(listed) == 0 {
		listed = All()
	}
	i := slices.Index(listed, first)
	if i < 0 {
		return nil, fmt.Errorf("%s %s is the default, but not among what the cluster is to offer (%s): add it to %s, or make one of these the default",
			f.Default, first.Name(), names(listed), f.Separate)
	}
	out := []cable.Driver{first}
	for _, d := range slices.Delete(listed, i, i+1) {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out, nil
}

// first is the default.
func (c Choice) first(listed []cable.Driver) (cable.Driver, error) {
	switch {
	case c.Default != "":
		return Parse(c.Default)
	case len(listed) > 0:
		return listed[0], nil
	}
	return Parse(Default)
}

// combined returns the cable that is made of drivers. The error goes on after what the
// user wrote.
func combined(of []string) (cable.Driver, error) {
	var possible []string
	for _, d := range All() {
		if parts := d.Properties().Parts; len(parts) > 0 {
			possible = append(possible, strings.Join(parts, ","))
		}
	}
	choose := "choose " + strings.Join(possible, " or ")
	d := Find(strings.Join(of, "+"))
	switch {
	case len(of) == 1:
		return nil, errors.New("is one driver, and a combined cable is one inside another: " + choose)
	case d == nil:
		return nil, errors.New("cannot be combined: " + choose)
	}
	return d, nil
}
