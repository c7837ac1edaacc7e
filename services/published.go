package services

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// A record is published once the broker has its page, in all clustersets of the cluster. The
// speaker, which writes pages to the broker, reports that in the condition Shared of a page.

// pagesByRecord returns the pages that have the record of each Service. While a record moves, two
// pages have it.
func pagesByRecord(pages []*v1alpha1.ExportedServices) map[types.NamespacedName][]*v1alpha1.ExportedServices {
	out := map[types.NamespacedName][]*v1alpha1.ExportedServices{}
	for _, page := range pages {
		for n := range page.Spec.Services {
			key := nameOf(&page.Spec.Services[n])
			out[key] = append(out[key], page)
		}
	}
	return out
}

// unpublished returns why a record is not published, given the pages that have it; nil if it is.
// was reports whether it was published before: then an older version of its page on the broker has
// it, too.
func unpublished(pages []*v1alpha1.ExportedServices, was bool) *obstacle {
	why := pending("waiting until a page of exported Services has it")
	for _, page := range pages {
		shared := meta.FindStatusCondition(page.Status.Conditions, v1alpha1.ConditionShared)
		switch {
		case shared == nil && was:
			return nil // nothing is known: gateways of earlier versions report nothing
		case shared == nil:
			why = pending(fmt.Sprintf("waiting until the gateway of this cluster reports that it has published %s: "+
				"if that lasts, see subctl show gateways; gateways of earlier versions do not report it", page.Name))
		case shared.Status == metav1.ConditionTrue && (was || shared.ObservedGeneration >= page.Generation):
			return nil
		case shared.Status == metav1.ConditionTrue, shared.Reason == v1alpha1.ReasonPending:
			why = pending(
				fmt.Sprintf("waiting until the broker has %s: if that lasts, see subctl show gateways", page.Name))
		case shared.Reason == v1alpha1.ReasonTooMany:
			why = &obstacle{false, ReasonNoPlaceOnBroker, fmt.Sprintf(
				"other clusters do not read it, as the broker has no place for %s: %s", page.Name, shared.Message)}
		default:
			why = failed("other clusters do not read it, as %s is not published: %s", page.Name, shared.Message)
		}
	}
	return why
}

// isTrue reports whether a condition of a ServiceExport is True.
func isTrue(e *mcsv1alpha1.ServiceExport, condition string) bool {
	return meta.IsStatusConditionTrue(e.Status.Conditions, condition)
}

// placesOf returns how many pages other clusters can read, if these are the first ones: the broker
// has no place for the next one. It is v1alpha1.MaxExportPages if all have a place as far as known,
// or others than the first ones have.
func placesOf(clusterID string, pages []*v1alpha1.ExportedServices) int {
	places := v1alpha1.MaxExportPages
	last := -1 // that has a place
	for _, page := range pages {
		n, ok := v1alpha1.ExportedServicesPage(clusterID, page.Name)
		shared := meta.FindStatusCondition(page.Status.Conditions, v1alpha1.ConditionShared)
		switch {
		case !ok || shared == nil:
		case shared.Status == metav1.ConditionTrue:
			last = max(last, n)
		case shared.Reason == v1alpha1.ReasonTooMany:
			places = min(places, n)
		}
	}
	if places == 0 || last > places {
		return v1alpha1.MaxExportPages
	}
	return places
}
