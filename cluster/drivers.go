package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
)

// DefaultConfigPath is where the ConfigMap with the settings of the cable drivers is
// mounted in the gateway's pods.
const DefaultConfigPath = "/etc/submariner/cable-driver-config"

// checkDrivers says what is wrong with the cable drivers that o names.
func (o Options) checkDrivers() error {
	var errs []error
	for _, name := range append([]string{o.CableDriver}, o.CableDrivers...) {
		if name != "" && drivers.Find(name) == nil {
			errs = append(errs, fmt.Errorf("there is no cable driver %q: choose one of %s", name, drivers.Names()))
		}
	}
	errs = append(errs, o.checkCombined())
	if o.CableDriver != "" && errors.Join(errs...) == nil {
		errs = append(errs, o.checkDefault(o.CableDriver, "--cable-driver "+o.CableDriver))
	}
	return errors.Join(errs...)
}

// checkCombined says what is wrong with the one combined cable that o names.
func (o Options) checkCombined() error {
	if len(o.CombinedCableDrivers) == 0 {
		return nil
	}
	var possible []string
	for _, d := range drivers.All() {
		if strings.Contains(d.Name(), "+") {
			possible = append(possible, strings.ReplaceAll(d.Name(), "+", ","))
		}
	}
	choose := "choose " + strings.Join(possible, " or ")
	said := strings.Join(o.CombinedCableDrivers, ",")
	switch d := drivers.Find(strings.Join(o.CombinedCableDrivers, "+")); {
	case len(o.CombinedCableDrivers) == 1:
		return fmt.Errorf("--combined-cable-drivers %s is one driver, and a combined cable is one inside another: %s", said, choose)
	case d == nil:
		return fmt.Errorf("--combined-cable-drivers %s cannot be combined: %s", said, choose)
	}
	return nil
}

// checkDefault says that the default driver is not among those the cluster is to
// offer. how is where the default comes from.
func (o Options) checkDefault(driver, how string) error {
	if len(o.CableDrivers) == 0 && len(o.CombinedCableDrivers) == 0 {
		return nil // all are offered
	}
	offered := slices.Clone(o.CableDrivers)
	if len(o.CombinedCableDrivers) > 0 {
		offered = append(offered, strings.Join(o.CombinedCableDrivers, "+"))
	}
	for _, name := range offered {
		if cable.Canonical(name) == cable.Canonical(driver) {
			return nil
		}
	}
	return fmt.Errorf("%s is the default, but not among what the cluster is to offer (%s): add it to --cable-drivers, or choose another default with --cable-driver",
		how, strings.Join(offered, ", "))
}

// checkNATTPort says who else has the UDP port of IPsec on the gateways.
func (o Options) checkNATTPort() error {
	if o.NATTPort < 1 || o.NATTPort > 65535 {
		return fmt.Errorf("--nattport %d is not a UDP port: choose one from 1 to 65535", o.NATTPort)
	}
	port := cable.Config{"ipsecPort": strconv.Itoa(o.NATTPort)}
	if err := cable.CheckPorts(map[string]cable.Config{cable.IPsec: port, cable.VXLANIPsec: port}, o.offered()); err != nil {
		return fmt.Errorf("--nattport: %w", err)
	}
	return nil
}

// offered are the drivers that the cluster may offer: all if o lists none.
func (o Options) offered() []cable.Driver {
	if len(o.CableDrivers) == 0 && len(o.CombinedCableDrivers) == 0 {
		return drivers.All()
	}
	var out []cable.Driver
	for _, name := range append(slices.Clone(o.CableDrivers), strings.Join(o.CombinedCableDrivers, "+")) {
		if d := drivers.Find(name); d != nil {
			out = append(out, d)
		}
	}
	return out
}

// configRef is the ConfigMap that --cable-driver-config names; nil if it names none.
func (o Options) configRef() *v1alpha1.ConfigMapRef {
	if o.CableDriverConfig == "" {
		return nil
	}
	ns, name, ok := strings.Cut(o.CableDriverConfig, "/")
	if !ok {
		ns, name = Namespace, ns
	}
	return &v1alpha1.ConfigMapRef{ConfigMapName: name, Namespace: ns}
}

// checkConfig says what is wrong with where o says the settings of the drivers are.
func (o Options) checkConfig() error {
	var errs []error
	if ref := o.configRef(); ref != nil {
		if ref.Namespace != Namespace {
			errs = append(errs, fmt.Errorf("--cable-driver-config %s is in namespace %q, but a pod can only have ConfigMaps of its own: put it into %s", o.CableDriverConfig, ref.Namespace, Namespace))
		}
		for _, text := range validation.IsDNS1123Subdomain(ref.ConfigMapName) {
			errs = append(errs, fmt.Errorf("--cable-driver-config: %q cannot be the name of a ConfigMap: %s", ref.ConfigMapName, text))
		}
	}
	if p := o.CableDriverConfigPath; p != "" && (!path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.Contains(p, ":")) {
		errs = append(errs, fmt.Errorf("--cable-driver-config-path %q is not the path of a folder: say one such as %s", p, DefaultConfigPath))
	}
	return errors.Join(errs...)
}

// configPath is where the ConfigMap with the settings of the drivers is mounted.
func configPath(sub *v1alpha1.Submariner) string {
	return cmp.Or(sub.Spec.CableDriverCustomConfigPath, DefaultConfigPath)
}

// nattPort is the UDP port of IPsec.
func nattPort(sub *v1alpha1.Submariner) int {
	return cmp.Or(sub.Spec.CeIPSecNATTPort, dataplane.IPsecPort)
}
