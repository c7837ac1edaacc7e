package drivers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// Choice holds the user's settings of the drivers that a cluster offers.
type Choice struct {
	// Default is the driver for pairs that no policy decides. If it is empty, the first driver
	// of Separate and Combined is used, or drivers.Default if there is none.
	Default string
	// Separate lists the drivers to offer. If it and Combined are empty, all are offered.
	Separate []string
	// Combined lists the drivers of one combined cable to offer, such as vxlan and ipsec.
	Combined []string
}

// Fields holds the names of the fields or flags from which a Choice was read, for messages.
type Fields struct{ Default, Separate, Combined string }

// Listed returns the drivers that the cluster of a Submariner may offer, the default first.
func Listed(s v1alpha1.SubmarinerSpec) ([]cable.Driver, error) {
	return Choice{Default: s.CableDriver, Separate: s.CableDrivers, Combined: s.CombinedCableDrivers}.Offered(Fields{
		Default:  "Submariner.spec.cableDriver",
		Separate: "Submariner.spec.cableDrivers",
		Combined: "Submariner.spec.combinedCableDrivers",
	})
}

// Offered returns the drivers to offer, the default first. The error contains all mistakes,
// each with its field.
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
		return nil, fmt.Errorf(
			"%s %s is not one of the drivers that the cluster offers (%s): add it to %s, or use one of these as the default",
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

// first returns the default driver.
func (c Choice) first(listed []cable.Driver) (cable.Driver, error) {
	switch {
	case c.Default != "":
		return Parse(c.Default)
	case len(listed) > 0:
		return listed[0], nil
	}
	return Parse(Default)
}

// combined returns the driver that combines others. The error continues a message that ends
// with the user's value.
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
