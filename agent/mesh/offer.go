package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/globalnet"
)

// Offer is what this node offers other clusters as a gateway, or would offer as one: cables to it,
// of the drivers that this cluster offers. The settings of the drivers are those in the Submariner
// object, overridden by those in the ConfigMap that it names.
//
// A mistake in them takes no cable down: what was in force before stays in force. The
// drivers are read back from the cluster's Endpoint. The settings are read back from
// the Cluster object, on which the speaker notes them for its successor and for the
// route agents, which read no ConfigMaps.
type Offer struct {
	Default  cable.Driver            // of pairs for which no policy decides
	Listed   []cable.Driver          // that the user allows, the default first
	Drivers  []cable.Driver          // that the cluster offers: those listed that its gateway can run
	Settings map[string]cable.Config // by driver
	// Err is the mistake because of which older settings or drivers are in force; nil if
	// there is none. ListedErr is the part of it that is about the drivers.
	Err, ListedErr error

	Local      cable.Local           // this node as a gateway
	Translates globalnet.Translation // what it translates as a gateway of a cluster with global networks

	DrainingSince time.Time // the zero Time if this gateway is in service
}

// readOffer returns the offer.
func readOffer(s role.Snapshot, m members.Membership) Offer {
	var o Offer
	o.readListed(m)
	o.readSettings(s, m)
	o.Local = localGateway(m, s, o.Settings)
	o = o.withEngines(m.Engines)
	o.translate(s, m)
	o.Local.Weight = m.Self.Weight
	o.Local.NotRunning = s.NotRunning
	o.Local.Siblings = severalGateways(&m, s.Standing)
	o.Local.TellsSiblings = true
	if o.Local.Drain, o.DrainingSince = readDraining(s); m.OutOfReach() {
		o.Local.Drain = max(o.Local.Drain, cable.Drained)
	}
	return o
}

// localGateway returns this node as a gateway with settings of drivers.
func localGateway(m members.Membership, s role.Snapshot, settings map[string]cable.Config) cable.Local {
	podIP, _ := netip.ParseAddr(s.Facts.PodIP) // the zero Addr: the node has none
	spec := m.Submariner.Spec
	healthIP := podIP
	if len(m.Own.Global) > 0 {
		healthIP = netip.Addr{} // other clusters cannot reach the pod network
	}
	return cable.Local{
		Gateway: cable.Gateway{
			Cluster: spec.ClusterID, Host: m.Self.Name, PrivateIP: m.Self.IP, Octets: m.Octets, PublicIP: s.PublicIP,
			HealthIP: healthIP,
			Subnets:  m.Own.Announced(), NAT: spec.NatEnabled,
			Name: cableName(spec.ClusterID, m.Self.IP),
		},
		MTU:          s.Facts.MTU,
		PodIP:        podIP,
		PodIPMissing: s.PodIPMissing,
		Pods:         m.Own.Pods,
		Svcs:         m.Own.Services,
		Global:       m.Own.Global,
		Keys:         s.Keys,
		Settings:     settings,
		Resilient:    s.Facts.ResilientGroups,
	}
}

// cableName returns the name of a gateway's cables: the cluster and the address at
// which they end (upstream's format).
func cableName(cluster string, ip netip.Addr) string {
	return "submariner-cable-" + cluster + "-" + strings.ReplaceAll(ip.String(), ".", "-")
}

// offers reports whether this cluster offers a driver.
func (o Offer) offers(driver string) bool {
	return slices.ContainsFunc(o.Drivers, func(d cable.Driver) bool { return d.Name() == driver })
}

// allows reports whether the user allows a driver.
func (o Offer) allows(driver cable.Driver) bool {
	return slices.ContainsFunc(o.Listed, func(d cable.Driver) bool { return d.Name() == driver.Name() })
}

// whyNot returns why this cluster does not offer a driver, as the end of a sentence.
func (o Offer) whyNot(d cable.Driver) string {
	if err := cmp.Or(d.Lacks(o.Local), o.ListedErr); err != nil {
		return ": " + err.Error()
	}
	return ": it is not in Submariner.spec.cableDrivers"
}

// Missing returns the reasons why this cluster does not offer the other drivers, by driver.
func (o Offer) Missing() map[string]string {
	out := map[string]string{}
	for _, d := range drivers.All() {
		if !o.offers(d.Name()) {
			out[d.Name()] = strings.TrimPrefix(o.whyNot(d), ": ")
		}
	}
	return out
}

// readListed fills in Default and Listed. After a mistake they are what the cluster's
// Endpoints offered before: each of them what its gateway can run.
func (o *Offer) readListed(m members.Membership) {
	listed, err := drivers.Listed(m.Submariner.Spec)
	if err == nil {
		o.Default = listed[0]
		o.Listed = listed
		return
	}
	o.ListedErr = err
	for _, e := range m.Endpoints {
		d := drivers.Find(e.Gateway.Default)
		if e.Err != nil || d == nil {
			continue
		}
		if o.Default == nil {
			o.Default = d
		}
		for _, name := range e.Gateway.Drivers {
			if d := drivers.Find(name); d != nil && !o.allows(d) {
				o.Listed = append(o.Listed, d)
			}
		}
	}
	if o.Default == nil { // no Endpoint names one
		o.Default = drivers.Find(drivers.Default)
	}
}

// readSettings fills in Settings and Err.
func (o *Offer) readSettings(s role.Snapshot, m members.Membership) {
	settings, err := o.userSettings(s, m.Submariner.Spec)
	o.Err = errors.Join(o.ListedErr, err)
	if o.Settings = settings; err == nil {
		return
	}
	o.Settings = nil // the defaults, if nothing was in force before
	if m.Cluster != nil {
		before, err := cable.ParseConfig(m.Cluster.Annotations[submarinerv1.CableConfigAnnotation], drivers.All())
		if err == nil && cable.CheckPorts(before, o.Listed) == nil {
			o.Settings = before
		}
	}
}

// userSettings returns the settings that the user specifies.
func (o *Offer) userSettings(s role.Snapshot, spec v1alpha1.SubmarinerSpec) (map[string]cable.Config, error) {
	settings, err := drivers.SettingsOf(spec)
	own, err2 := configMapSettings(s, spec.CableDriverCustomConfig)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	for name, c := range own {
		settings[name] = settings[name].With(c)
	}
	return settings, cable.CheckPorts(settings, o.Listed)
}

// configMapSettings returns the settings in the ConfigMap that the Submariner names;
// nil if it names none.
func configMapSettings(s role.Snapshot, ref *v1alpha1.ConfigMapRef) (map[string]cable.Config, error) {
	if ref == nil || ref.ConfigMapName == "" {
		return nil, nil
	}
	if ns := cmp.Or(ref.Namespace, submarinerv1.OperatorNamespace); ns != submarinerv1.OperatorNamespace {
		return nil, fmt.Errorf(
			"Submariner.spec.cableDriverCustomConfig names ConfigMap %s in namespace %s, but a pod can only have those of its own: put it into %s",
			ref.ConfigMapName, ns, submarinerv1.OperatorNamespace)
	}
	cm := role.Find[*corev1.ConfigMap](s, ref.ConfigMapName)
	if cm == nil {
		return nil, fmt.Errorf(
			"there is no ConfigMap %s in namespace %s, which Submariner.spec.cableDriverCustomConfig names: make it, or remove the name",
			ref.ConfigMapName, submarinerv1.OperatorNamespace)
	}
	text, err := cable.ConfigText(cm.Data)
	var own map[string]cable.Config
	if err == nil {
		own, err = cable.ParseConfig(text, drivers.All())
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s, key %s: %w", cm.Name, v1alpha1.CableCustomConfig, err)
	}
	return own, nil
}
