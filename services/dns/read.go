package dns

import (
	"net/netip"
	"strings"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// readImport returns what the index keeps of an import; nil if it is not ours.
func readImport(o *mcsv1alpha1.ServiceImport) *imported {
	if o.Labels[submarinerv1.ManagedByLabel] != submarinerv1.ManagedBy {
		return nil
	}
	out := &imported{
		headless: o.Spec.Type == mcsv1alpha1.Headless,
		direct:   o.Annotations[v1alpha1.DirectAnnotation] == "true",
		spread:   o.Annotations[v1alpha1.SpreadAnnotation] == "true",
	}
	for _, ip := range o.Spec.IPs {
		if a, ok := readAddress(ip); ok {
			out.ips = append(out.ips, a)
		}
	}
	for _, p := range o.Spec.Ports {
		out.ports = appendPort(out.ports, p.Name, string(p.Protocol), p.Port)
	}
	return out
}

// readSlice returns what the index keeps of a slice; nil if it is not ours.
func readSlice(o *discoveryv1.EndpointSlice) *slice {
	cluster := o.Labels[mcsv1alpha1.LabelSourceCluster]
	if o.Labels[discoveryv1.LabelManagedBy] != services.ManagedBy || !isLabel(cluster) {
		return nil
	}
	out := &slice{name: o.Name, cluster: intern(cluster), endpoints: make([]endpoint, 0, len(o.Endpoints))}
	if a, ok := readAddress(o.Annotations[services.AddressAnnotation]); ok {
		out.address = a
	}
	for _, p := range o.Ports {
		if p.Port == nil {
			continue
		}
		name := ""
		protocol := ""
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = string(*p.Protocol)
		}
		out.ports = appendPort(out.ports, name, protocol, *p.Port)
	}
	for _, e := range o.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		a, ok := readAddress(e.Addresses[0]) // consumers use the first one only
		if !ok {
			continue
		}
		is := endpoint{address: a, ready: e.Conditions.Ready == nil || *e.Conditions.Ready}
		if e.Hostname != nil && isLabel(*e.Hostname) {
			is.hostname = *e.Hostname
		}
		out.endpoints = append(out.endpoints, is)
	}
	return out
}

func readAddress(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil && a.Zone() == ""
}

func appendPort(to []port, name, protocol string, number int32) []port {
	if number < 1 || number > 65535 {
		return to
	}
	if protocol == "" {
		protocol = "TCP"
	}
	return append(to, port{intern(strings.ToLower(name)), intern(strings.ToLower(protocol)), uint16(number)})
}

// intern returns a string that is in memory once, however many objects have it.
func intern(s string) string { return unique.Make(s).Value() }

// isLabel reports whether s is a label of a domain name as Kubernetes has them (RFC 1123).
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
