package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
)

// A Service that a CNF exposes becomes FirewallDNAT objects. Both sides must want it: the Service has ExposeAnnotation, and the Deployment of the
// CNF has ZonesAnnotation. Without the second one, whoever may annotate a Service could open a firewall.

const (
	// ExposeAnnotation is on a Service: from which zone of which CNF in its namespace its ports are reached, in JSON:
	//
	//	{"purpose": "cnf-1", "zone": "wan1", "ports": [{"port": 80, "as": 8080}]}
	//
	// The port 80 of the Service is reached at the port 8080 of the CNF. "as" is the same port if it is absent; "ports" are all ports of the Service.
	ExposeAnnotation = "sdewan.subctl.io/expose"
	// ZonesAnnotation is on the Deployment of a CNF: the zones from which Services may be reached, separated by commas.
	ZonesAnnotation = "sdewan.subctl.io/service-zones"
	// exposedLabel is on the FirewallDNAT objects that the controller makes: the UID of the Service.
	exposedLabel = "sdewan.subctl.io/service"
	// serviceBucket is the type of these rules, which the seed has for them.
	serviceBucket = "k8s-service"
	// maxExposed is how many ports a Service exposes at most: each becomes an object.
	maxExposed = 64
)

// exposure is the value of ExposeAnnotation.
type exposure struct {
	Purpose string        `json:"purpose"`
	Zone    string        `json:"zone"`
	Ports   []exposedPort `json:"ports"`
}

type exposedPort struct {
	Port int32 `json:"port"`
	As   int32 `json:"as"`
}

// parseExposure returns the value of the annotation, with all mistakes in the error.
func parseExposure(annotation string) (exposure, error) {
	var e exposure
	d := json.NewDecoder(bytes.NewBufferString(annotation))
	d.DisallowUnknownFields()
	err := d.Decode(&e)
	if _, end := d.Token(); err == nil && end != io.EOF {
		err = errors.New("there is something after the value")
	}
	if err != nil {
		return e, fmt.Errorf(`annotation %s must be JSON such as {"purpose":"cnf-1","zone":"wan1","ports":[{"port":80,"as":8080}]}: %w`, ExposeAnnotation, err)
	}
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("annotation "+ExposeAnnotation+": "+format, args...))
	}
	if e.Purpose == "" || len(validation.IsValidLabelValue(e.Purpose)) > 0 {
		complain("purpose must be the label %s of a CNF, not %.70q", sdewan.PurposeLabel, e.Purpose)
	}
	if len(validation.IsDNS1123Subdomain(e.Zone)) > 0 {
		complain("zone must be the name of a FirewallZone, not %.260q", e.Zone)
	}
	if len(e.Ports) > maxExposed {
		complain("%d ports are too many: list at most %d", len(e.Ports), maxExposed)
		e.Ports = nil
	}
	for i, p := range e.Ports {
		if p.Port < 1 || p.Port > 65535 || p.As < 0 || p.As > 65535 {
			complain("ports[%d]: port and as must be ports, from 1 to 65535", i)
		}
	}
	return e, errors.Join(errs...)
}

// exposed returns the rules for a Service: none, if it has no annotation. What is wrong is in the error; the other rules are returned. Zones are
// those that the CNF allows.
func exposed(s *corev1.Service, zones func(purpose string) ([]string, error)) ([]*batch.FirewallDNAT, error) {
	annotation, ok := s.Annotations[ExposeAnnotation]
	if !ok || !s.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	e, err := parseExposure(annotation)
	if err != nil {
		return nil, err
	}
	allowed, err := zones(e.Purpose)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(allowed, e.Zone) {
		return nil, fmt.Errorf("the CNF %s does not let Services be reached from zone %s: add the zone to annotation %s of its Deployment", e.Purpose, e.Zone, ZonesAnnotation)
	}
	var address netip.Addr
	for _, ip := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil && a.Is4() {
			address = a
		}
	}
	if !address.IsValid() {
		return nil, errors.New("the Service has no IPv4 address in the cluster: a CNF can only lead to a Service with a cluster IP")
	}
	if len(e.Ports) == 0 {
		if len(s.Spec.Ports) > maxExposed {
			return nil, fmt.Errorf("annotation %s: the Service has %d ports: list those to expose, at most %d", ExposeAnnotation, len(s.Spec.Ports), maxExposed)
		}
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(e.Ports, func(o exposedPort) bool { return o.Port == p.Port }) {
				e.Ports = append(e.Ports, exposedPort{Port: p.Port})
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
			as := strconv.Itoa(int(cmp.Or(p.As, p.Port)))
			r := &batch.FirewallDNAT{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("service-%s-%s-%s", s.Name, as, proto), Namespace: s.Namespace,
				Labels: map[string]string{sdewan.PurposeLabel: e.Purpose, sdewan.BucketLabel: serviceBucket, exposedLabel: string(s.UID)},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID, Controller: new(true),
				}},
			}}
			r.Spec.Src, r.Spec.SrcDPort, r.Spec.Proto = batch.ZoneName(e.Zone), batch.Ports(as), batch.Proto(proto)
			r.Spec.DestIP, r.Spec.DestPort = batch.IP(address.String()), batch.Port(strconv.Itoa(int(p.Port)))
			if slices.ContainsFunc(out, func(o *batch.FirewallDNAT) bool { return o.Name == r.Name }) {
				errs = append(errs, fmt.Errorf("annotation %s: port %s/%s of the CNF is used twice", ExposeAnnotation, as, proto))
				continue
			}
			out = append(out, r)
		}
		if !found {
			errs = append(errs, fmt.Errorf("annotation %s: the Service has no port %d", ExposeAnnotation, p.Port))
		}
	}
	return out, errors.Join(errs...)
}

// exposer makes the rules of Services: one request for each Service.
type exposer struct {
	client client.Client
	events events.EventRecorder
	o      Options
}

func addExposures(mgr manager.Manager, o Options, recorder events.EventRecorder) error {
	x := &exposer{mgr.GetClient(), recorder, o}
	annotated := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetAnnotations()[ExposeAnnotation] != "" })
	// An update may have removed the annotation; a Service that is gone leaves its rules to the garbage collector, and to Reconcile.
	annotated.UpdateFunc = func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.GetAnnotations()[ExposeAnnotation], e.ObjectNew.GetAnnotations()[ExposeAnnotation]
		return (before != "" || after != "") && slimChanged.Update(e)
	}
	made := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()[exposedLabel] != "" })
	made.UpdateFunc = func(e event.UpdateEvent) bool {
		return made.Create(event.CreateEvent{Object: e.ObjectNew}) && ruleChanged.Update(e)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("sdewan-services").
		WithOptions(controller.Options{LogConstructor: func(*reconcile.Request) logr.Logger { return logr.FromSlogHandler(o.Log.Handler()) }}).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(annotated)).
		// At the start, each rule that exists leads to its Service: so what is left of one that is gone, or not exposed any more, is removed.
		Watches(&batch.FirewallDNAT{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			for _, owner := range obj.GetOwnerReferences() {
				if owner.Kind == "Service" {
					return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: owner.Name}}}
				}
			}
			return nil
		}), builder.WithPredicates(made)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(x.users), builder.WithPredicates(labelsChanged)).
		Complete(x)
}

// labelsChanged leaves out changes of a Deployment that do not matter to Services.
var labelsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
}}

// users returns the Services that name the CNF of a Deployment.
func (x *exposer) users(ctx context.Context, deployment client.Object) []reconcile.Request {
	var list corev1.ServiceList
	if err := x.client.List(ctx, &list, client.InNamespace(deployment.GetNamespace())); err != nil {
		return nil // there is a cache, or nothing works
	}
	var out []reconcile.Request
	for _, s := range list.Items {
		if s.Annotations[ExposeAnnotation] != "" {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s)})
		}
	}
	return out
}

// zones returns the zones of a CNF from which Services may be reached.
func (x *exposer) zones(ctx context.Context, namespace, purpose string) ([]string, error) {
	var list appsv1.DeploymentList
	if err := x.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{sdewan.PurposeLabel: purpose}); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("annotation %s: %d Deployments in namespace %s have the label %s=%s: there must be one", ExposeAnnotation, len(list.Items), namespace, sdewan.PurposeLabel, purpose)
	}
	return strings.FieldsFunc(list.Items[0].Annotations[ZonesAnnotation], func(r rune) bool { return r == ',' || r == ' ' }), nil
}

// Reconcile makes the rules of a Service be what its annotation says.
func (x *exposer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s := &corev1.Service{}
	if err := x.client.Get(ctx, req.NamespacedName, s); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
		s = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	}
	want, mistake := exposed(s, func(purpose string) ([]string, error) { return x.zones(ctx, s.Namespace, purpose) })
	if mistake != nil {
		x.o.Log.Warn("Service is not exposed", "namespace", s.Namespace, "service", s.Name, "err", mistake)
		x.events.Eventf(s, nil, corev1.EventTypeWarning, "NotExposed", "Expose", "%s", bounded(oneLine(mistake)))
	}
	var have batch.FirewallDNATList
	if err := x.client.List(ctx, &have, client.InNamespace(req.Namespace), client.HasLabels{exposedLabel}); err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	for _, r := range want {
		if other := rival(r, have.Items); other != "" {
			x.events.Eventf(s, nil, corev1.EventTypeWarning, "PortTaken", "Expose", "port %s/%s of the CNF leads to Service %s already, whose rule is older: choose another port with \"as\"", r.Spec.SrcDPort, r.Spec.Proto, other)
		}
		var is batch.FirewallDNAT
		err := x.client.Get(ctx, client.ObjectKeyFromObject(r), &is)
		switch {
		case err == nil && !metav1.IsControlledBy(&is, s):
			x.events.Eventf(s, nil, corev1.EventTypeWarning, "NotExposed", "Expose", "FirewallDNAT %s exists, and is not the controller's: rename it", r.Name)
			continue
		case err == nil && is.DeletionTimestamp.IsZero() && is.Spec == r.Spec && sameLabels(is.Labels, r.Labels):
			continue
		case err == nil || apierrors.IsNotFound(err):
			err = kube.Apply(ctx, x.client, fieldOwner, r)
		}
		errs = append(errs, err)
	}
	for i := range have.Items {
		r := &have.Items[i]
		of := metav1.GetControllerOf(r)
		if of == nil || of.Kind != "Service" || of.Name != req.Name || !r.DeletionTimestamp.IsZero() {
			continue
		}
		if !slices.ContainsFunc(want, func(w *batch.FirewallDNAT) bool { return w.Name == r.Name && of.UID == s.UID }) {
			errs = append(errs, client.IgnoreNotFound(x.client.Delete(ctx, r, client.Preconditions{UID: &r.UID})))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// rival returns the Service to which an older rule leads the same packets; empty if there is none.
func rival(r *batch.FirewallDNAT, have []batch.FirewallDNAT) string {
	is := slices.IndexFunc(have, func(o batch.FirewallDNAT) bool { return o.Name == r.Name })
	for i, o := range have {
		of := metav1.GetControllerOf(&o)
		if i == is || of == nil || o.Labels[sdewan.PurposeLabel] != r.Labels[sdewan.PurposeLabel] ||
			o.Spec.Src != r.Spec.Src || o.Spec.SrcDPort != r.Spec.SrcDPort || o.Spec.Proto != r.Spec.Proto {
			continue
		}
		if is < 0 || sdewan.Order(&o, &have[is]) < 0 {
			return of.Name
		}
	}
	return ""
}

func sameLabels(is, want map[string]string) bool {
	for k, v := range want {
		if is[k] != v {
			return false
		}
	}
	return true
}
