// Package expose says which FirewallDNAT objects expose a Service at a CNF. Both sides must want
// it: the Service has Annotation, and the Deployment of the CNF has ZonesAnnotation. Without the
// second one, whoever may annotate a Service could open a firewall.
package expose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
)

const (
	// Annotation is on a Service: from which zone of which CNF in its namespace its ports are
	// reached, in JSON:
	//
	//	{"purpose": "cnf-1", "zone": "wan1", "ports": [{"port": 80, "as": 8080}]}
	//
	// The port 80 of the Service is reached at the port 8080 of the CNF. "as" is the same port if
	// it is absent; "ports" are all ports of the Service.
	Annotation = "sdewan.subctl.io/expose"
	// ZonesAnnotation is on the Deployment of a CNF: the zones from which Services may be reached,
	// separated by commas.
	ZonesAnnotation = "sdewan.subctl.io/service-zones"
	// Label is on the FirewallDNAT objects that the controller makes: the UID of the
	// Service.
	Label = "sdewan.subctl.io/service"
	// serviceBucket is the type of these rules, which the proposal has for them.
	serviceBucket = "k8s-service"
	// maxPorts is the maximum number of ports that a Service exposes: each becomes an object.
	maxPorts = 64
)

// ruleName matches the names of rules for Services, which Rules gives them.
var ruleName = regexp.MustCompile(`^service-(.+)-[0-9]+-(?:tcp|udp|sctp)$`)

// exposure is the value of Annotation.
type exposure struct {
	Purpose string `json:"purpose"`
	Zone    string `json:"zone"`
	Ports   []port `json:"ports"`
}

type port struct {
	Port int32  `json:"port"`
	As   *int32 `json:"as"` // nil for Port
}

// on returns the port of the CNF.
func (p port) on() int32 {
	if p.As == nil {
		return p.Port
	}
	return *p.As
}

// parse returns the value of the annotation, with all mistakes in the error.
func parse(annotation string) (exposure, error) {
	var e exposure
	d := json.NewDecoder(bytes.NewBufferString(annotation))
	d.DisallowUnknownFields()
	err := d.Decode(&e)
	if _, end := d.Token(); err == nil && end != io.EOF {
		err = errors.New("there is something after the value")
	}
	if err != nil {
		return e, fmt.Errorf(
			`annotation %s must be JSON such as {"purpose":"cnf-1","zone":"wan1","ports":[{"port":80,"as":8080}]}: %w`,
			Annotation, err)
	}
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("annotation "+Annotation+": "+format, args...))
	}
	if e.Purpose == "" || len(validation.IsValidLabelValue(e.Purpose)) > 0 {
		complain("purpose must be the label %s of a CNF, not %.70q", sdewan.PurposeLabel, e.Purpose)
	}
	if len(validation.IsDNS1123Subdomain(e.Zone)) > 0 {
		complain("zone must be the name of a FirewallZone, not %.260q", e.Zone)
	}
	if len(e.Ports) > maxPorts {
		complain("%d ports are too many: list at most %d", len(e.Ports), maxPorts)
		e.Ports = nil
	}
	for i, p := range e.Ports {
		if p.Port < 1 || p.Port > 65535 || p.on() < 1 || p.on() > 65535 {
			complain("ports[%d]: port and as must be ports, from 1 to 65535", i)
		}
	}
	return e, errors.Join(errs...)
}

// Rules returns the rules for a Service: none, if it has no annotation. What is wrong is in the
// error; the other rules are returned. Zones are those that the CNF allows.
func Rules(s *corev1.Service, zones func(purpose string) ([]string, error)) ([]*batch.FirewallDNAT, error) {
	annotation, ok := s.Annotations[Annotation]
	if !ok || !s.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	e, err := parse(annotation)
	if err != nil {
		return nil, err
	}
	allowed, err := zones(e.Purpose)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(allowed, e.Zone) {
		return nil, fmt.Errorf(
			"the CNF %s does not let Services be reached from zone %s: add the zone to annotation %s of its Deployment",
			e.Purpose, e.Zone, ZonesAnnotation)
	}
	var address netip.Addr
	for _, ip := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil && a.Is4() {
			address = a
		}
	}
	if !address.IsValid() {
		return nil, errors.New(
			"the Service has no IPv4 address in the cluster: a CNF can only lead to a Service with a cluster IP")
	}
	if len(e.Ports) == 0 {
		if len(s.Spec.Ports) > maxPorts {
			return nil, fmt.Errorf("annotation %s: the Service has %d ports: list those to expose, at most %d",
				Annotation, len(s.Spec.Ports), maxPorts)
		}
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(e.Ports, func(o port) bool { return o.Port == p.Port }) {
				e.Ports = append(e.Ports, port{Port: p.Port})
			}
		}
	}
	var out []*batch.FirewallDNAT
	var errs []error
	for _, p := range e.Ports {
		found := false
		for _, of := range s.Spec.Ports {
			proto := strings.ToLower(string(of.Protocol))
			if of.Port != p.Port || !slices.Contains([]string{"tcp", "udp", "sctp"}, proto) {
				continue
			}
			found = true
			as := strconv.Itoa(int(p.on()))
			r := &batch.FirewallDNAT{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("service-%s-%s-%s", s.Name, as, proto), Namespace: s.Namespace,
				Labels: map[string]string{
					sdewan.PurposeLabel: e.Purpose,
					sdewan.BucketLabel:  serviceBucket,
					Label:               string(s.UID),
				},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID, Controller: new(true),
				}},
			}}
			r.Spec.Src = batch.ZoneName(e.Zone)
			r.Spec.SrcDPort = batch.Ports(as)
			r.Spec.Proto = batch.Proto(proto)
			r.Spec.DestIP = batch.IP(address.String())
			r.Spec.DestPort = batch.Port(strconv.Itoa(int(p.Port)))
			if slices.ContainsFunc(out, func(o *batch.FirewallDNAT) bool { return o.Name == r.Name }) {
				errs = append(errs,
					fmt.Errorf("annotation %s: port %s/%s of the CNF is used twice", Annotation, as, proto))
				continue
			}
			out = append(out, r)
		}
		if !found {
			errs = append(errs, fmt.Errorf("annotation %s: the Service has no port %d", Annotation, p.Port))
		}
	}
	return out, errors.Join(errs...)
}

// ServiceOf returns the name of the Service whose rule has, or would have, a name; "" if there is
// none.
func ServiceOf(rule string) string {
	if m := ruleName.FindStringSubmatch(rule); m != nil {
		return m[1]
	}
	return ""
}
