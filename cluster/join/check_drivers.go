package join

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/ipsec"
	"subctl/cluster"
)

// driverFlags are where a user of join says which drivers the cluster offers.
var driverFlags = drivers.Fields{Default: "--cable-driver", Separate: "--cable-drivers", Combined: "--combined-cable-drivers"}

// choice is what o says about the drivers, with this default.
func (o Options) choice(driver string) drivers.Choice {
	return drivers.Choice{Default: driver, Separate: o.CableDrivers, Combined: o.CombinedCableDrivers}
}

// driver returns the cluster's own driver, which counts where no cable policy decides.
func (r request) driver() string {
	return cmp.Or(r.CableDriver, r.broker.Broker.Spec.CableDriver, drivers.Default)
}

// checkDriver refuses a default driver that the cluster cannot use, and warns of one that
// the broker's default policy overrules.
func checkDriver(r request) ([]string, error) {
	var errs []error
	if r.CableDriver == "" {
		errs = append(errs, r.checkBrokersDriver())
	}
	if d := drivers.Find(r.driver()); r.NAT && d != nil && !d.Properties().PassesNAT {
		errs = append(errs, fmt.Errorf("the cable driver %q cannot pass an address translation: leave --natt off, and let gateways reach each other's node addresses", r.driver()))
	}
	policy := cmp.Or(r.broker.Broker.Spec.CableDriver, drivers.Default)
	if r.CableDriver == "" || cable.Canonical(r.CableDriver) == cable.Canonical(policy) {
		return nil, errors.Join(errs...)
	}
	return []string{fmt.Sprintf("--cable-driver %s counts where no cable policy decides, and the broker came with one for all pairs: %s. "+
		"Change it (subctl cable-policy), or refuse anything else with --cable-drivers %[1]s", r.CableDriver, policy)}, errors.Join(errs...)
}

// checkBrokersDriver returns what is wrong with the broker's default driver for a cluster
// that specifies none.
func (r request) checkBrokersDriver() error {
	if _, err := r.choice("").Offered(driverFlags); err != nil {
		return nil // Validate reports it
	}
	fields := driverFlags
	fields.Default = "the broker's cable driver"
	if _, err := r.choice(r.driver()).Offered(fields); err != nil {
		return fmt.Errorf("choose a default with --cable-driver: %w", err)
	}
	return nil
}

// checkNATTPort says who else has the UDP port of IPsec on the gateways.
func (o Options) checkNATTPort() error {
	if o.NATTPort < 1 || o.NATTPort > 65535 {
		return fmt.Errorf("--nattport %d is not a UDP port: choose one from 1 to 65535", o.NATTPort)
	}
	offered, err := o.choice(o.CableDriver).Offered(driverFlags)
	if err != nil {
		return nil // which is said elsewhere
	}
	settings, err := ipsec.SettingsOf(v1alpha1.SubmarinerSpec{CeIPSecNATTPort: o.NATTPort})
	if err == nil {
		err = cable.CheckPorts(settings, offered)
	}
	if err != nil {
		return fmt.Errorf("--nattport: %w", err)
	}
	return nil
}

// configRef is the ConfigMap that --cable-driver-config names; nil if it names none.
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

// checkConfig says what is wrong with where o says the settings of the drivers are.
func (o Options) checkConfig() error {
	var errs []error
	if ref := o.configRef(); ref != nil {
		if ref.Namespace != cluster.Namespace {
			errs = append(errs, fmt.Errorf("--cable-driver-config %s is in namespace %q, but a pod can only have ConfigMaps of its own: put it into %s", o.CableDriverConfig, ref.Namespace, cluster.Namespace))
		}
		for _, text := range validation.IsDNS1123Subdomain(ref.ConfigMapName) {
			errs = append(errs, fmt.Errorf("--cable-driver-config: %q cannot be the name of a ConfigMap: %s", ref.ConfigMapName, text))
		}
	}
	if p := o.CableDriverConfigPath; p != "" && (!path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.Contains(p, ":")) {
		errs = append(errs, fmt.Errorf("--cable-driver-config-path %q is not the path of a folder: say one such as %s", p, cluster.DefaultConfigPath))
	}
	return errors.Join(errs...)
}

// checkConfigMap warns of a ConfigMap with settings of drivers that cannot be used.
func checkConfigMap(r request) ([]string, error) {
	ref, found := r.configRef(), r.member.CableConfig
	if ref == nil {
		return nil, nil
	}
	why := "there is none"
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
	return []string{fmt.Sprintf("ConfigMap %s/%s, which --cable-driver-config names: %s: until that is put right, the settings of before count, or the defaults",
		ref.Namespace, ref.ConfigMapName, why)}, nil
}
