package join

import (
	"cmp"
	"fmt"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// driverNames returns the names of the settings of the drivers, for messages.
func (o Options) driverNames() drivers.Fields {
	return drivers.Fields{
		Default:  o.source("cable-driver"),
		Separate: o.source("cable-drivers"),
		Combined: o.source("combined-cable-drivers"),
	}
}

// choice returns the drivers that o specifies, with the given default.
func (o Options) choice(driver string) drivers.Choice {
	return drivers.Choice{Default: driver, Separate: o.CableDrivers, Combined: o.CombinedCableDrivers}
}

// driver returns the default driver of the cluster, used where no cable policy decides.
func (r request) driver() string {
	return cmp.Or(r.CableDriver, r.only(), r.broker.Broker.Spec.CableDriver, drivers.Default)
}

// only returns the driver that o offers if that is one, which is the default then; empty if there
// are others, or if no flag chooses them.
func (o Options) only() string {
	offered, err := o.choice("").Offered(o.driverNames())
	if err != nil || len(o.CableDrivers)+len(o.CombinedCableDrivers) == 0 || len(offered) != 1 {
		return ""
	}
	return offered[0].Name()
}

// checkDriver refuses the broker's default driver for a cluster that specifies none, if the
// cluster cannot use it.
func checkDriver(r request) ([]string, error) {
	if _, err := r.choice("").Offered(r.driverNames()); r.CableDriver != "" || err != nil {
		return nil, nil // Validate reports it
	}
	fields := r.driverNames()
	fields.Default = "the broker's cable driver"
	if _, err := r.choice(r.driver()).Offered(fields); err != nil {
		return nil, fmt.Errorf("choose a default with --cable-driver: %w", err)
	}
	return nil, nil
}

// invalidDrivers reports whether the choice of drivers has a mistake, which is reported elsewhere.
func (r request) invalidDrivers() bool {
	_, err := r.choice(r.driver()).Offered(r.driverNames())
	return err != nil
}

// checkNATTPort returns an error if the UDP port of IPsec is invalid or used by another
// driver.
func (o Options) checkNATTPort() error {
	if o.NATTPort < 1 || o.NATTPort > 65535 {
		return fmt.Errorf("%s %d is not a UDP port: choose one from 1 to 65535", o.source("nattport"), o.NATTPort)
	}
	offered, err := o.choice(o.CableDriver).Offered(o.driverNames())
	if err != nil {
		return nil // Validate reports it
	}
	settings, err := drivers.SettingsOf(v1alpha1.SubmarinerSpec{CeIPSecNATTPort: o.NATTPort})
	if err == nil {
		err = cable.CheckPorts(settings, offered)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.source("nattport"), err)
	}
	return nil
}
