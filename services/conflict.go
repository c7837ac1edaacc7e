package services

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/words"
)

// property is what exporters of a Service have to agree on.
type property struct {
	reason mcsv1alpha1.ServiceExportConditionReason
	same   func(a, b *v1alpha1.ExportedService) bool
	text   func(*v1alpha1.ExportedService) string
}

// properties are all but the type.
var properties = []property{
	{
		mcsv1alpha1.ServiceExportReasonPortConflict,
		func(a, b *v1alpha1.ExportedService) bool { return samePorts(a.Ports, b.Ports) },
		func(r *v1alpha1.ExportedService) string { return "ports " + portText(r.Ports) },
	},
	{
		mcsv1alpha1.ServiceExportReasonSessionAffinityConflict,
		func(a, b *v1alpha1.ExportedService) bool { return (a.AffinitySeconds == 0) == (b.AffinitySeconds == 0) },
		func(r *v1alpha1.ExportedService) string { return "sessionAffinity " + string(affinity(r)) },
	},
	{
		mcsv1alpha1.ServiceExportReasonSessionAffinityConfigConflict,
		func(a, b *v1alpha1.ExportedService) bool {
			return a.AffinitySeconds == b.AffinitySeconds || a.AffinitySeconds == 0 || b.AffinitySeconds == 0
		},
		func(r *v1alpha1.ExportedService) string { return fmt.Sprintf("timeoutSeconds %d", r.AffinitySeconds) },
	},
	{
		mcsv1alpha1.ServiceExportReasonLabelsConflict,
		func(a, b *v1alpha1.ExportedService) bool { return maps.Equal(a.Labels, b.Labels) },
		func(r *v1alpha1.ExportedService) string { return "exportedLabels " + mapText(r.Labels) },
	},
	{
		mcsv1alpha1.ServiceExportReasonAnnotationsConflict,
		func(a, b *v1alpha1.ExportedService) bool { return maps.Equal(a.Annotations, b.Annotations) },
		func(r *v1alpha1.ExportedService) string { return "exportedAnnotations " + mapText(r.Annotations) },
	},
	{
		mcsv1alpha1.ServiceExportReasonInternalTrafficPolicyConflict,
		func(a, b *v1alpha1.ExportedService) bool { return trafficPolicy(a) == trafficPolicy(b) },
		func(r *v1alpha1.ExportedService) string { return "internalTrafficPolicy " + trafficPolicy(r) },
	},
	{
		ReasonSpreadConflict,
		func(a, b *v1alpha1.ExportedService) bool { return a.Spread == b.Spread },
		func(r *v1alpha1.ExportedService) string { return annotated(v1alpha1.SpreadAnnotation, r.Spread) },
	},
	{
		ReasonDirectConflict,
		func(a, b *v1alpha1.ExportedService) bool { return a.Direct == b.Direct },
		func(r *v1alpha1.ExportedService) string { return annotated(v1alpha1.DirectAnnotation, r.Direct) },
	},
	{
		mcsv1alpha1.ServiceExportReasonTrafficDistributionConflict,
		func(a, b *v1alpha1.ExportedService) bool { return a.TrafficDistribution == b.TrafficDistribution },
		func(r *v1alpha1.ExportedService) string {
			return "trafficDistribution " + cmp.Or(r.TrafficDistribution, "unset")
		},
	},
}

// Reasons of the condition Conflict that the API does not have: exporters disagree on an annotation
// of ours.
const (
	ReasonSpreadConflict mcsv1alpha1.ServiceExportConditionReason = "SpreadConflict"
	ReasonDirectConflict mcsv1alpha1.ServiceExportConditionReason = "DirectConflict"
)

// annotated returns whether a ServiceExport has an annotation, as text.
func annotated(annotation string, on bool) string {
	if on {
		return "with annotation " + annotation
	}
	return "without annotation " + annotation
}

// typeConflict is the property that decides which exporters are imported.
var typeConflict = property{
	mcsv1alpha1.ServiceExportReasonTypeConflict,
	func(a, b *v1alpha1.ExportedService) bool { return a.Headless == b.Headless },
	func(r *v1alpha1.ExportedService) string { return "type " + string(typeOf(r)) },
}

// conflicts returns on what the exporters disagree. Each property is compared with that of the
// exporter which decides.
func (m *merged) conflicts() Conflict {
	texts := map[string]string{}
	for _, p := range properties {
		m.compare(p, m.exporters[1:], texts)
	}
	m.compare(typeConflict, m.losers, texts)
	if len(texts) == 0 {
		return Conflict{}
	}
	var c Conflict
	var sentences []string
	for _, reason := range slices.Sorted(maps.Keys(texts)) {
		c.Reasons = append(c.Reasons, reason)
		sentences = append(sentences, texts[reason])
	}
	c.Message = strings.Join(sentences, "; ")
	return c
}

// compare adds a text if exporters differ from the one that decides. It names the first of them.
func (m *merged) compare(p property, others []claim, texts map[string]string) {
	var first *claim
	differ := 0
	for n := range others {
		if p.same(m.decides(), others[n].record) {
			continue
		}
		differ++
		if first == nil {
			first = &others[n]
		}
	}
	if first == nil {
		return
	}
	text := fmt.Sprintf("cluster %s decides, and exports %s; cluster %s exports %s",
		m.exporters[0].cluster, clip(p.text(m.decides())), first.cluster, clip(p.text(first.record)))
	if differ > 1 {
		text += fmt.Sprintf(" (%d clusters differ)", differ)
	}
	texts[string(p.reason)] = text
}

// lost returns why nothing of an exporter is imported.
func (m *merged) lost(c claim) string {
	return fmt.Sprintf("it has type %s, and cluster %s, which was first, exports type %s",
		typeOf(c.record), m.exporters[0].cluster, typeOf(m.decides()))
}

func samePorts(a, b []v1alpha1.ExportedPort) bool {
	if len(a) != len(b) {
		return false
	}
	for n, p := range a {
		equal := func(o v1alpha1.ExportedPort) bool {
			return o.Name == p.Name && o.Port == p.Port && protocolOf(o) == protocolOf(p) &&
				o.AppProtocol == p.AppProtocol
		}
		if !equal(b[n]) && !slices.ContainsFunc(b, equal) {
			return false
		}
	}
	return true
}

// clip bounds a text that an exporter determines.
func clip(text string) string { return words.Clip(text, 256) }

func portText(ports []v1alpha1.ExportedPort) string {
	if len(ports) == 0 {
		return "none"
	}
	var list []string
	for _, p := range ports {
		text := fmt.Sprintf("%d/%s", p.Port, protocolOf(p))
		if p.Name != "" {
			text = p.Name + " " + text
		}
		if p.AppProtocol != "" {
			text += " (" + p.AppProtocol + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func mapText(m map[string]string) string {
	if len(m) == 0 {
		return "none"
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+m[k])
	}
	return strings.Join(list, ", ")
}
