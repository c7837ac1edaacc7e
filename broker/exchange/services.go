package exchange

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
)

// This file checks the form of pages of export records, with the bounds of the CRD: a broker may
// have no such CRD. A page is copied or refused as a whole. Package services decides which records
// are imported.

// maxLabel is the maximum number of bytes of a text that has no other form.
const maxLabel = 63

// checkPage returns what is wrong with a page, or "".
func checkPage(page *v1alpha1.ExportedServicesSpec) string {
	switch n := len(page.Services); {
	case page.Pages < 0 || page.Pages > v1alpha1.MaxExportPages:
		return fmt.Sprintf("spec.pages is %d, not 0 to %d", page.Pages, v1alpha1.MaxExportPages)
	case n > v1alpha1.MaxPageServices:
		return fmt.Sprintf("it has %d Services, more than %d", n, v1alpha1.MaxPageServices)
	}
	for i := range page.Services {
		s := &page.Services[i]
		if i > 0 && compareServices(page.Services[i-1], *s) >= 0 {
			return fmt.Sprintf("Service %.63s/%.63s is listed twice, or out of order", s.Namespace, s.Name)
		}
		if flaw := checkService(s); flaw != "" {
			return fmt.Sprintf("Service %.63s/%.63s: %s", s.Namespace, s.Name, flaw)
		}
	}
	return ""
}

// compareServices compares Services by namespace and name.
func compareServices(a, b v1alpha1.ExportedService) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// checkService returns what is wrong with a record, or "".
func checkService(s *v1alpha1.ExportedService) string {
	switch {
	case !isLabel(s.Namespace) || !isLabel(s.Name):
		return "namespace and name must be DNS labels"
	case len(s.Ports) > v1alpha1.MaxExportedPorts:
		return fmt.Sprintf("it has %d ports, more than %d", len(s.Ports), v1alpha1.MaxExportedPorts)
	case len(s.Endpoints) > v1alpha1.MaxExportedGroups:
		return fmt.Sprintf("it has %d groups of endpoints, more than %d", len(s.Endpoints), v1alpha1.MaxExportedGroups)
	case len(s.Labels) > v1alpha1.MaxExportedLabels || len(s.Annotations) > v1alpha1.MaxExportedLabels:
		return fmt.Sprintf("it has more than %d labels or annotations", v1alpha1.MaxExportedLabels)
	case len(s.InternalTrafficPolicy) > maxLabel || len(s.TrafficDistribution) > maxLabel:
		return fmt.Sprintf("internalTrafficPolicy or trafficDistribution has more than %d bytes", maxLabel)
	case s.Address != "" && !isIPv4(s.Address):
		return fmt.Sprintf("address %.60q is no IPv4 address", s.Address)
	}
	for _, p := range s.Ports {
		if flaw := checkPort(p); flaw != "" {
			return flaw
		}
	}
	for _, g := range s.Endpoints {
		if flaw := checkEndpoints(g, len(s.Ports)); flaw != "" {
			return flaw
		}
	}
	return ""
}

// checkPort returns what is wrong with a port, or "".
func checkPort(p v1alpha1.ExportedPort) string {
	switch {
	case p.Name != "" && !isLabel(p.Name):
		return fmt.Sprintf("the port name %.60q is no DNS label", p.Name)
	case p.Port < 1 || p.Port > 65535:
		return fmt.Sprintf("port %d is not 1 to 65535", p.Port)
	case !slices.Contains([]string{"", "TCP", "UDP", "SCTP"}, p.Protocol):
		return fmt.Sprintf("protocol %.60q is not TCP, UDP or SCTP", p.Protocol)
	case len(p.AppProtocol) > v1alpha1.MaxAppProtocol:
		return fmt.Sprintf("appProtocol has more than %d bytes", v1alpha1.MaxAppProtocol)
	}
	return ""
}

// checkEndpoints returns what is wrong with a group of endpoints of a Service with some ports, or
// "".
func checkEndpoints(g v1alpha1.ExportedEndpoints, ports int) string {
	switch {
	case len(g.Targets) != ports:
		return fmt.Sprintf("a group of endpoints has %d target ports, and the Service %d ports", len(g.Targets), ports)
	case len(g.Pods) > v1alpha1.MaxExportedPods:
		return fmt.Sprintf("a group has %d endpoints, more than %d", len(g.Pods), v1alpha1.MaxExportedPods)
	}
	for _, target := range g.Targets {
		if target < 0 || target > 65535 {
			return fmt.Sprintf("target port %d is not 0 to 65535", target)
		}
	}
	states := []v1alpha1.EndpointState{
		v1alpha1.EndpointReady, v1alpha1.EndpointNotReady, v1alpha1.EndpointTerminating, v1alpha1.EndpointServing,
	}
	for _, e := range g.Pods {
		switch {
		case !isIPv4(e.IP):
			return fmt.Sprintf("endpoint %.60q is no IPv4 address", e.IP)
		case e.Hostname != "" && !isLabel(e.Hostname):
			return fmt.Sprintf("the hostname %.60q of endpoint %s is no DNS label", e.Hostname, e.IP)
		case len(e.Zone) > maxLabel:
			return fmt.Sprintf("the zone of endpoint %s has more than %d bytes", e.IP, maxLabel)
		case !slices.Contains(states, e.State):
			return fmt.Sprintf("the state %.60q of endpoint %s is unknown", e.State, e.IP)
		}
	}
	return ""
}

func isLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

func isIPv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

// addressesOf returns all addresses of a page.
func addressesOf(page *v1alpha1.ExportedServicesSpec) []string {
	var out []string
	for _, s := range page.Services {
		if s.Address != "" {
			out = append(out, s.Address)
		}
		for _, g := range s.Endpoints {
			for _, e := range g.Pods {
				out = append(out, e.IP)
			}
		}
	}
	return out
}

// namespacesOf returns the namespaces of the Services of a page.
func namespacesOf(page *v1alpha1.ExportedServicesSpec) []string {
	var out []string
	for _, s := range page.Services {
		out = append(out, s.Namespace)
	}
	return slices.Compact(out)
}
