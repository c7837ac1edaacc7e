package join

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cluster"
	"subctl/policy"
	"subctl/policy/catalog"
)

// checkCables and checkNAT judge the cables that the cluster will have: what the policies on the
// broker decide for its pairs with the other clusters of its sets, or, while there are none, for
// its pair with a cluster of the same sets that has no labels. The driver with which the broker was
// deployed decides nothing: it is the default of clusters that specify none.

// verdict is a cable that several pairs of this cluster have.
type verdict struct {
	catalog.Cable
	others []string // the other clusters; empty: those that join later
}

// verdicts returns the cables of the pairs of this cluster, in the order of the clusters.
func (r request) verdicts() []verdict {
	spec := r.submariner(nil, nil).Spec
	labels := r.effective(r.lastSubmariner().ClusterLabels(), r.Labels)
	known := r.catalog(spec, labels)
	self, _ := known.Cluster(r.ClusterID)
	cables := known.CablesOf(self.ID)
	var out []verdict
	index := map[string]int{}
	for _, other := range known.Clusters {
		if other.ID == self.ID || !self.SharesSet(other) {
			continue
		}
		c := cables[other.ID].Cable
		key := fmt.Sprint(c.Driver, "\n", c.Policy, "\n", c.Err)
		i, known := index[key]
		if !known {
			i = len(out)
			index[key] = i
			out = append(out, verdict{Cable: c})
		}
		out[i].others = append(out[i].others, other.ID)
	}
	if len(out) > 0 {
		return out
	}
	later := policy.Cluster{Sets: self.Sets, Driver: self.Driver}
	pair := policy.Pair{X: self, Y: later}
	return []verdict{{Cable: known.CableOf(pair, known.Book().Decide(self, later))}}
}

// clusters names the other clusters.
func (v verdict) clusters() string {
	switch len(v.others) {
	case 0:
		return "clusters that join later"
	case 1:
		return "cluster " + v.others[0]
	}
	return "clusters " + strings.Join(v.others, ", ")
}

// pairs names the pairs.
func (v verdict) pairs() string {
	if len(v.others) == 1 {
		return "the pair with " + v.clusters()
	}
	return "the pairs with " + v.clusters()
}

// choice states which driver is chosen, and by what.
func (v verdict) choice() string {
	if v.Policy == "" {
		return fmt.Sprintf("%s, the default driver of both clusters of %s,", v.Driver, v.pairs())
	}
	return fmt.Sprintf("%s, which cable policy %s chooses for %s,", v.Driver, v.Policy, v.pairs())
}

// checkCables warns of pairs that get no cable, and of a default driver that policies overrule.
func checkCables(r request) ([]string, error) {
	if r.invalidDrivers() {
		return nil, nil // checkDriver reports it
	}
	var warnings []string
	for _, v := range r.verdicts() {
		switch {
		case v.Err != nil && len(v.others) == 0:
			warnings = append(warnings,
				fmt.Sprintf("no cable to %s, unless another policy matches them: %v", v.clusters(), v.Err))
		case v.Err != nil:
			warnings = append(warnings, fmt.Sprintf("no cable to %s: %v", v.clusters(), v.Err))
		case v.Policy != "" && r.CableDriver != "" && !r.isStored("cable-driver") &&
			cable.Canonical(r.CableDriver) != v.Driver:
			warnings = append(
				warnings,
				fmt.Sprintf(
					"--cable-driver %s is used only where no cable policy decides: cable policy %s chooses %s for %s. "+
						"%s",
					r.CableDriver,
					v.Policy,
					v.Driver,
					v.pairs(),
					r.otherDriver(v),
				),
			)
		}
	}
	return warnings, nil
}

// otherDriver tells how the pairs of this cluster get the driver that was asked for, although a
// policy decides on another one. A member cannot change a policy of the broker: docs/adr/0045.
func (r request) otherDriver(v verdict) string {
	driver := cable.Canonical(r.CableDriver)
	if v.Policy != v1alpha1.DefaultCablePolicy {
		return fmt.Sprintf("To use %s, change policy %s, or add one that is more specific (subctl cable-policy)",
			driver, v.Policy)
	}
	return fmt.Sprintf("To use %[1]s for the pairs of this cluster: subctl cable-policy add %[2]s-cables "+
		"--left-cluster-selector %[3]s=%[2]s --cable-driver %[1]s. For all pairs that no other policy matches: "+
		"subctl deploy-broker --cable-driver %[1]s", driver, r.ClusterID, submarinerv1.ClusterIDLabel)
}

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
			errs = append(
				errs,
				fmt.Errorf(
					"%s %s is in namespace %q, but the agents may read only ConfigMaps of their own namespace: create it in %s",
					o.source("cable-driver-config"), o.CableDriverConfig, ref.Namespace, cluster.Namespace),
			)
		}
		for _, text := range validation.IsDNS1123Subdomain(ref.ConfigMapName) {
			errs = append(
				errs,
				fmt.Errorf("%s: %q is not a valid name of a ConfigMap: %s", o.source("cable-driver-config"),
					ref.ConfigMapName, text),
			)
		}
	}
	return errors.Join(errs...)
}

// checkConfigMap warns if the ConfigMap with the settings of the drivers cannot be used.
func checkConfigMap(r request) ([]string, error) {
	ref := r.configRef()
	found := r.member.CableConfig
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
	return []string{
		fmt.Sprintf(
			"ConfigMap %s/%s, which --cable-driver-config names: %s: until that is fixed, the previous settings apply, or the defaults",
			ref.Namespace, ref.ConfigMapName, why),
	}, nil
}

// The values of Options.Encryption.
const (
	EncryptionRequired = string(submarinerv1.EncryptionRequired)
	EncryptionOptional = "optional"
)

// checkEncryption returns an error if the flag --encryption has an unknown value.
func (o Options) checkEncryption() error {
	switch o.Encryption {
	case "":
		if !o.specifies("encryption") {
			return nil
		}
	case EncryptionRequired, EncryptionOptional:
		return nil
	}
	return fmt.Errorf("--encryption %q is not a value: use %s or %s", o.Encryption, EncryptionRequired,
		EncryptionOptional)
}

// encryption returns whether the cluster requires encryption.
func (r request) encryption() submarinerv1.Encryption {
	switch {
	case r.Encryption == EncryptionRequired:
		return submarinerv1.EncryptionRequired
	case r.Encryption == "" && r.member.Submariner != nil:
		return r.member.Submariner.Spec.Encryption
	}
	return ""
}

// checkNAT refuses --natt if the policies choose a driver for a pair of this cluster that
// does not work through NAT. It warns if they would do so for a cluster that joins later, and
// of a NAT setting from an earlier join.
func checkNAT(r request) ([]string, error) {
	if !r.NAT || r.invalidDrivers() {
		return nil, nil
	}
	var warnings []string
	var errs []error
	for _, v := range r.verdicts() {
		if d := drivers.Find(v.Driver); d == nil || d.Properties().PassesNAT {
			continue
		}
		where := "--natt"
		remedy := "omit --natt"
		field := r.storedIn("natt")
		if field != "" {
			where = field
			remedy = "specify --natt=false"
		}
		text := fmt.Sprintf(
			"%s: %s does not work through NAT: these drivers work through NAT: %s; choose one with subctl cable-policy add, "+
				"or %s, and make sure that gateways can reach the node addresses of other gateways",
			where,
			v.choice(),
			strings.Join(throughNAT(), ", "),
			remedy,
		)
		if field != "" || len(v.others) == 0 {
			warnings = append(warnings, text)
		} else {
			errs = append(errs, errors.New(text))
		}
	}
	return warnings, errors.Join(errs...)
}

// throughNAT returns the names of the drivers that work through NAT.
func throughNAT() []string {
	var out []string
	for _, d := range drivers.All() {
		if d.Properties().PassesNAT {
			out = append(out, d.Name())
		}
	}
	return out
}
