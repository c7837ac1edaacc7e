package join

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cluster"
)

// driverNames returns the names of the settings of the drivers, for messages.
func (o Options) driverNames() drivers.Fields {
	return drivers.Fields{Default: o.source("cable-driver"), Separate: o.source("cable-drivers"), Combined: o.source("combined-cable-drivers")}
}

// choice returns the drivers that o specifies, with the given default.
func (o Options) choice(driver string) drivers.Choice {
	return drivers.Choice{Default: driver, Separate: o.CableDrivers, Combined: o.CombinedCableDrivers}
}

// driver returns the default driver of the cluster, used where no cable policy decides.
func (r request) driver() string {
	return cmp.Or(r.CableDriver, r.broker.Broker.Spec.CableDriver, drivers.Default)
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

// configRef returns the ConfigMap that --cable-driver-config names; nil if it is not set.
func (o Options) configRef() *v1alpha1.ConfigMapRef {
	if o.CableDriverConfig == "" {
		return nil
	}
	ns, name, ok := strings.Cut(o.CableDriverConfig, "/")
	if !ok {
		ns, name = cluster.Namespace, ns
	}
	return &v1alpha1.ConfigMapRef{ConfigMapName: name, Namespace: ns}
}

// checkConfig returns the mistakes in the name of that ConfigMap.
func (o Options) checkConfig() error {
	var errs []error
	if ref := o.configRef(); ref != nil {
		if ref.Namespace != cluster.Namespace {
			errs = append(errs, fmt.Errorf("%s %s is in namespace %q, but the agents may read only ConfigMaps of their own namespace: create it in %s", o.source("cable-driver-config"), o.CableDriverConfig, ref.Namespace, cluster.Namespace))
		}
		for _, text := range validation.IsDNS1123Subdomain(ref.ConfigMapName) {
			errs = append(errs, fmt.Errorf("%s: %q is not a valid name of a ConfigMap: %s", o.source("cable-driver-config"), ref.ConfigMapName, text))
		}
	}
	return errors.Join(errs...)
}

// checkConfigMap warns if the ConfigMap with the settings of the drivers cannot be used.
func checkConfigMap(r request) ([]string, error) {
	ref, found := r.configRef(), r.member.CableConfig
	if ref == nil {
		return nil, nil
	}
	why := "it does not exist"
	if found != nil {
		text, err := cable.ConfigText(found.Data)
		if err == nil {
			_, err = cable.ParseConfig(text, drivers.All())
		}
		if err == nil {
			return nil, nil
		}
		why = fmt.Sprintf("key %s: %v", v1alpha1.CableCustomConfig, err)
	}
	return []string{fmt.Sprintf("ConfigMap %s/%s, which --cable-driver-config names: %s: until that is fixed, the previous settings apply, or the defaults",
		ref.Namespace, ref.ConfigMapName, why)}, nil
}
