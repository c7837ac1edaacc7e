package services

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

const (
	derivedPrefix = "derived-"
	// exportedKeys is an annotation of ServiceImports: the keys of labels and annotations that come
	// from the exporter. Others on the import are not ours.
	exportedKeys = "submariner.io/exported-keys"
)

// reasonNameTaken is a reason of the condition Ready of ServiceImports. The API has the other ones.
const reasonNameTaken = "NameTaken"

// DerivedName returns the name of the derived Service of a ServiceImport, by the rule of the
// example controllers of the API, which others follow too.
func DerivedName(key types.NamespacedName) string {
	sum := sha256.Sum256([]byte(key.Namespace + "/" + key.Name))
	return derivedPrefix + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:10]
}

// derived is how far the objects of an import are.
type derived struct {
	// name is the name of the derived Service.
	name string
	// address is its cluster IP; empty as long as it has none.
	address string
	// taken lists objects of others that have the names of ours.
	taken []string
}

func (m *merged) importType() mcsv1alpha1.ServiceImportType { return typeOf(m.decides()) }

func typeOf(r *v1alpha1.ExportedService) mcsv1alpha1.ServiceImportType {
	if r.Headless {
		return mcsv1alpha1.Headless
	}
	return mcsv1alpha1.ClusterSetIP
}

// affinity returns the session affinity of a record.
func affinity(r *v1alpha1.ExportedService) corev1.ServiceAffinity {
	if r.AffinitySeconds == 0 {
		return corev1.ServiceAffinityNone
	}
	return corev1.ServiceAffinityClientIP
}

func affinityConfig(r *v1alpha1.ExportedService) *corev1.SessionAffinityConfig {
	if r.AffinitySeconds == 0 {
		return nil
	}
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(r.AffinitySeconds)}}
}

// wantImport returns the ServiceImport. The address is that of its derived Service, if it has one.
func wantImport(m *merged, d derived, direct bool) *mcsv1alpha1.ServiceImport {
	r := m.decides()
	labels, annotations, _ := importable(r.Labels, r.Annotations)
	i := &mcsv1alpha1.ServiceImport{
		TypeMeta: metav1.TypeMeta{
			APIVersion: mcsv1alpha1.GroupVersion.String(),
			Kind:       mcsv1alpha1.ServiceImportKindName,
		},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   m.key.Namespace,
			Name:        m.key.Name,
			Labels:      map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy},
			Annotations: map[string]string{},
		},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Ports:                 m.ports,
			Type:                  m.importType(),
			SessionAffinity:       affinity(r),
			SessionAffinityConfig: affinityConfig(r),
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
			InternalTrafficPolicy: (*corev1.ServiceInternalTrafficPolicy)(optional(r.InternalTrafficPolicy)),
			TrafficDistribution:   optional(r.TrafficDistribution),
		},
	}
	maps.Copy(i.Labels, labels)
	maps.Copy(i.Annotations, annotations)
	if len(labels)+len(annotations) > 0 {
		keys := slices.Sorted(maps.Keys(labels))
		keys = slices.AppendSeq(keys, maps.Keys(annotations))
		slices.Sort(keys)
		i.Annotations[exportedKeys] = strings.Join(slices.Compact(keys), ",")
	}
	if r.Spread {
		i.Annotations[v1alpha1.SpreadAnnotation] = "true"
	}
	if m.headless() {
		return i
	}
	i.Annotations[derivedServiceAnnotation] = d.name
	if r.Direct || direct {
		i.Annotations[v1alpha1.DirectAnnotation] = "true"
	}
	if d.address != "" {
		i.Spec.IPs = []string{d.address}
	}
	return i
}

// exportedOf returns the labels or annotations of an import that come from the exporter.
func exportedOf(have *mcsv1alpha1.ServiceImport, all map[string]string) map[string]string {
	var out map[string]string
	for key := range strings.SplitSeq(have.Annotations[exportedKeys], ",") {
		if value, ok := all[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// wantService returns the derived Service of an import. internalTrafficPolicy is left out:
// endpoints of other clusters are on none of the nodes, and Local would reject connections.
func wantService(m *merged, owner *mcsv1alpha1.ServiceImport) *corev1.Service {
	r := m.decides()
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.key.Namespace,
			Name:      DerivedName(m.key),
			Labels: map[string]string{
				submarinerv1.ManagedByLabel:  submarinerv1.ManagedBy,
				mcsv1alpha1.LabelServiceName: m.key.Name,
			},
			// Kubernetes 1.30 follows hints only with the annotation.
			Annotations:     map[string]string{corev1.AnnotationTopologyMode: "Auto"},
			OwnerReferences: []metav1.OwnerReference{ownerOf(owner)},
		},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeClusterIP,
			SessionAffinity:       affinity(r),
			SessionAffinityConfig: affinityConfig(r),
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
			IPFamilyPolicy:        new(corev1.IPFamilyPolicySingleStack),
		},
	}
	for _, p := range m.ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name:        p.Name,
			Protocol:    p.Protocol,
			Port:        p.Port,
			TargetPort:  intstr.FromInt32(p.Port),
			AppProtocol: p.AppProtocol,
		})
	}
	return s
}

func ownerOf(i *mcsv1alpha1.ServiceImport) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: mcsv1alpha1.GroupVersion.String(),
		Kind:       mcsv1alpha1.ServiceImportKindName,
		Name:       i.Name,
		UID:        i.UID,
		Controller: new(true),
	}
}

// wantStatus returns the import with the status that is wanted, or nil if it has that already.
func wantStatus(have *mcsv1alpha1.ServiceImport, m *merged, d derived) *mcsv1alpha1.ServiceImport {
	status := mcsv1alpha1.ServiceImportStatus{EndpointSliceObjects: mcsv1alpha1.EndpointSliceObjectsPresent}
	for _, c := range m.exporters {
		status.Clusters = append(status.Clusters, mcsv1alpha1.ClusterStatus{Cluster: c.cluster})
	}
	ready := d.condition(m)
	for _, c := range have.Status.Conditions {
		switch {
		case c.Type != ready.Type:
			status.Conditions = append(status.Conditions, c)
		case c.Status == ready.Status:
			ready.LastTransitionTime = c.LastTransitionTime
		}
	}
	status.Conditions = append(status.Conditions, ready)
	slices.SortStableFunc(status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	if equality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	out := have.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{
		APIVersion: mcsv1alpha1.GroupVersion.String(),
		Kind:       mcsv1alpha1.ServiceImportKindName,
	}
	out.Status = status
	return out
}

// condition returns the condition Ready of an import, without time.
func (d derived) condition(m *merged) metav1.Condition {
	ready := metav1.Condition{Type: string(mcsv1alpha1.ServiceImportConditionReady), Status: metav1.ConditionFalse}
	switch {
	case len(d.taken) > 0:
		ready.Reason = reasonNameTaken
		ready.Message = fmt.Sprintf("somebody else has made %s: delete or rename it", strings.Join(d.taken, ", "))
	case !m.headless() && d.address == "":
		ready.Reason = string(mcsv1alpha1.ServiceImportReasonPending)
		ready.Message = fmt.Sprintf("waiting for the cluster IP of Service %s", d.name)
	default:
		ready.Status = metav1.ConditionTrue
		ready.Reason = string(mcsv1alpha1.ServiceImportReasonReady)
	}
	return ready
}

// clusterIPOf returns the cluster IP of a derived Service; empty if it has none yet.
func clusterIPOf(s *corev1.Service) string {
	if ip, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil && ip.Is4() {
		return s.Spec.ClusterIP
	}
	return ""
}
