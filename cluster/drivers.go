package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/ipsec"
	"subctl/dataplane"
)

// DefaultConfigPath is where the ConfigMap with the settings of the cable drivers is
// mounted in the gateway's pods.
const DefaultConfigPath = "/etc/submariner/cable-driver-config"

// driverFlags are where a user of join says which drivers the cluster offers.
var driverFlags = drivers.Fields{Default: "--cable-driver", Separate: "--cable-drivers", Combined: "--combined-cable-drivers"}

// choice is what o says about the drivers, with this default.
func (o Options) choice(driver string) drivers.Choice {
	return drivers.Choice{Default: driver, Separate: o.CableDrivers, Combined: o.CombinedCableDrivers}
}

// checkBrokersDriver says what is wrong with the broker's default driver as that of a
// cluster that names none.
func (o Options) checkBrokersDriver(driver string) error {
	fields := driverFlags
	fields.Default = "the broker's cable driver"
	if _, err := o.choice(driver).Offered(fields); err != nil {
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

// configWarning says why the ConfigMap that o names cannot be used, as found; empty if it
// can.
func (o Options) configWarning(found *corev1.ConfigMap) string {
	ref := o.configRef()
	if ref == nil {
		return ""
	}
	why := "there is none"
	if found != nil {
		text, err := cable.ConfigText(found.Data)
		if err == nil {
			_, err = cable.ParseConfig(text, drivers.All())
		}
		if err == nil {
			return ""
		}
		why = fmt.Sprintf("key %s: %v", v1alpha1.CableCustomConfig, err)
	}
	return fmt.Sprintf("ConfigMap %s/%s, which --cable-driver-config names: %s: until that is put right, the settings of before count, or the defaults",
		ref.Namespace, ref.ConfigMapName, why)
}

// configPath is where the ConfigMap with the settings of the drivers is mounted.
func configPath(sub *v1alpha1.Submariner) string {
	return cmp.Or(sub.Spec.CableDriverCustomConfigPath, DefaultConfigPath)
}

// nattPort is the UDP port of IPsec.
func nattPort(sub *v1alpha1.Submariner) int {
	return cmp.Or(sub.Spec.CeIPSecNATTPort, dataplane.IPsecPort)
}
