package services

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/words"
)

// ConditionPublished is a condition of a ServiceExport in a cluster with a global network: whether
// other clusters get its record. There, Ready is about the global addresses, and the globalnet
// agent writes it.
const ConditionPublished = "Published"

// Reasons of the conditions Ready and Published of a ServiceExport that the API does not have.
const (
	// ReasonNamespaceNotGranted means that the grant of the cluster does not allow exports from the
	// namespace.
	ReasonNamespaceNotGranted = "NamespaceNotGranted"
	// ReasonNoPlaceOnBroker means that the broker has no place for the page with the record.
	ReasonNoPlaceOnBroker = "NoPlaceOnBroker"
	// ReasonTooManyExports means that the record has no room in the pages of the cluster.
	ReasonTooManyExports = "TooManyExports"
)

// obstacle is why a Service is not exported.
type obstacle struct {
	// invalid is set if the Service cannot be exported as it is: Valid is False then, instead of
	// Ready.
	invalid bool
	reason  string
	message string
}

func noService(e *mcsv1alpha1.ServiceExport) *obstacle {
	return &obstacle{true, string(mcsv1alpha1.ServiceExportReasonNoService), fmt.Sprintf(
		"there is no Service %s in namespace %s: once it is created, it is exported", e.Name, e.Namespace)}
}

func invalidType(message string) *obstacle {
	return &obstacle{true, string(mcsv1alpha1.ServiceExportReasonInvalidServiceType), message}
}

func notGranted(namespace string) *obstacle {
	return &obstacle{false, ReasonNamespaceNotGranted, fmt.Sprintf(
		"the grant of this cluster does not allow exports from namespace %s: "+
			"join again, and specify the namespace with subctl join --export-namespaces", namespace)}
}

func pending(message string) *obstacle {
	return &obstacle{false, string(mcsv1alpha1.ServiceExportReasonPending), message}
}

func failed(format string, args ...any) *obstacle {
	return &obstacle{false, string(mcsv1alpha1.ServiceExportReasonFailed), fmt.Sprintf(format, args...)}
}

// conditions returns the conditions of a ServiceExport, whose Service is exported unless there is
// an obstacle. Notes are what of it is left out.
func (x *exporter) conditions(e *mcsv1alpha1.ServiceExport, no *obstacle, notes []string) []metav1.Condition {
	conflict := newCondition(e, mcsv1alpha1.ServiceExportConditionConflict, metav1.ConditionFalse,
		mcsv1alpha1.ServiceExportReasonNoConflicts, "no other cluster exports the Service with other properties")
	ready := newCondition(e, mcsv1alpha1.ServiceExportConditionReady, metav1.ConditionTrue,
		mcsv1alpha1.ServiceExportReasonExported, publishedMessage(e, notes))
	if x.global() {
		ready.Type = ConditionPublished
		if no != nil {
			no.deny(&ready)
		}
		return []metav1.Condition{ready, conflict}
	}
	valid := newCondition(e, mcsv1alpha1.ServiceExportConditionValid, metav1.ConditionTrue,
		mcsv1alpha1.ServiceExportReasonValid, "the Service can be exported")
	if no != nil && no.invalid {
		no.deny(&valid)
		no = pending("the Service cannot be exported: see the condition Valid")
	}
	if no != nil {
		no.deny(&ready)
	}
	return []metav1.Condition{valid, ready, conflict}
}

func newCondition(
	e *mcsv1alpha1.ServiceExport, of mcsv1alpha1.ServiceExportConditionType, status metav1.ConditionStatus,
	reason mcsv1alpha1.ServiceExportConditionReason, message string,
) metav1.Condition {
	return metav1.Condition{
		Type:               string(of),
		Status:             status,
		Reason:             string(reason),
		Message:            message,
		ObservedGeneration: e.Generation,
	}
}

// deny makes a condition False.
func (o *obstacle) deny(c *metav1.Condition) {
	c.Status = metav1.ConditionFalse
	c.Reason = o.reason
	c.Message = o.message
}

// noRoom is why a record is in no page.
var noRoom = obstacle{false, ReasonTooManyExports, fmt.Sprintf(
	"this cluster exports more than fits in %d pages of %d KiB, and older exports come first: "+
		"export fewer Services, or with fewer labels and annotations", v1alpha1.MaxExportPages, usualPage>>10)}

// Conclude adds to the conditions of exports what is known only after all clusters' exports are:
// the conflicts that Import has found, which records Pages has left out, and which are not on the
// broker yet, by the pages that the cluster has.
func Conclude(
	exported []Exported, conflicts map[types.NamespacedName]Conflict, left []types.NamespacedName,
	pages []*v1alpha1.ExportedServices,
) {
	with := pagesByRecord(pages)
	out := make(map[types.NamespacedName]bool, len(left))
	for _, key := range left {
		out[key] = true
	}
	for _, e := range exported {
		key := keyOf(e.Export)
		conflict := conflicts[key]
		for i := range e.Conditions {
			switch c := &e.Conditions[i]; c.Type {
			case string(mcsv1alpha1.ServiceExportConditionReady), ConditionPublished:
				if c.Status != metav1.ConditionTrue {
					continue
				}
				if out[key] {
					noRoom.deny(c)
				} else if no := unpublished(with[key], isTrue(e.Export, c.Type)); no != nil {
					no.deny(c)
				}
			case string(mcsv1alpha1.ServiceExportConditionConflict):
				if len(conflict.Reasons) > 0 {
					c.Status = metav1.ConditionTrue
					c.Reason = strings.Join(conflict.Reasons, ",")
					c.Message = conflict.Message
				}
			}
		}
	}
}

// publishedMessage returns the message of an exported Service.
func publishedMessage(e *mcsv1alpha1.ServiceExport, notes []string) string {
	text := fmt.Sprintf("published as %s.%s.svc.%s to the clusters of its clustersets", e.Name, e.Namespace, Domain)
	return strings.Join(append([]string{text}, notes...), "; ")
}

// maxKeyText is the most bytes of a key in a message. Users may have chosen it to fill the message.
const maxKeyText = 64

func droppedKeys(keys []string) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = fmt.Sprintf("%q", words.Clip(key, maxKeyText))
	}
	return fmt.Sprintf("exportedLabels and exportedAnnotations that are not exported, as they are invalid, "+
		"have a prefix by which software controls objects, such as kubernetes.io, or are more than %d or %d KiB in all: %s",
		maxKeys, maxKeysSize>>10, words.List(texts))
}

func longAppProtocol(p *corev1.ServicePort) string {
	return fmt.Sprintf("the appProtocol of port %d is not exported, as it is longer than %d bytes",
		p.Port, v1alpha1.MaxAppProtocol)
}

func morePorts(ports []corev1.ServicePort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}
	return fmt.Sprintf("ports that are not exported, as they are more than %d: %s",
		v1alpha1.MaxExportedPorts, words.List(texts))
}

func outside(endpoints []endpoint) string {
	return "endpoints that are not exported, as they are not in the pod network: " + addresses(endpoints)
}

func tooMany(endpoints []endpoint) string {
	return fmt.Sprintf("endpoints that are not exported, as a Service has at most %d (headless: %d), in %d KiB: %s",
		maxPods, maxEndpoints, maxRecord>>10, addresses(endpoints))
}

func addresses(endpoints []endpoint) string {
	texts := make([]string, len(endpoints))
	for i, e := range endpoints {
		texts[i] = e.addr.String()
	}
	return words.List(texts)
}
