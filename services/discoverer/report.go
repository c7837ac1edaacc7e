package discoverer

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// ReasonRefused is a reason of the condition Ready of a ServiceImport that the Multi-Cluster
// Services API does not have: the API server refuses the derived Service.
const ReasonRefused = "ServiceRefused"

// reportServices returns the objects to write, at most maxWrites without pages. What takes
// endpoints out of use comes first.
func reportServices(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
	r := role.Report{Tolerant: true}
	d, is := p.Decisions.(*ServicePlan)
	if !is || o.Failure() != nil {
		return r
	}
	d.reportPages(&r, s)
	w := writes{s: s, left: role.MaxWrites}
	existing, missing := d.endpointSlices(s)
	lists := [][]role.Object{
		objects(d.imported.Delete), existing, missing, asObjects(d.imported.Imports), asObjects(d.imported.Services),
		append(d.exportStatuses(&r, o.Now), d.importStatuses(s, o.Now)...),
	}
	rest := 0
	for i := range lists {
		lists[i] = w.due(lists[i])
		rest += len(lists[i])
	}
	for i := range lists {
		rest -= len(lists[i])
		lists[i] = w.take(lists[i], rest)
	}
	r.Delete = append(r.Delete, lists[0]...)
	r.Apply = slices.Concat(lists[1:5]...)
	r.UpdateStatus = lists[5]
	r.More = w.more
	r.Again = w.again
	return r
}

// writes hands out objects to write, as many as a loop may write.
type writes struct {
	s     role.Snapshot
	left  int
	more  bool
	again time.Duration // until the first refused write is to be tried again; 0 for never
}

// due returns the objects that the API server has not refused a moment ago.
func (w *writes) due(all []role.Object) []role.Object {
	var out []role.Object
	for _, o := range all {
		if wait := w.s.Refused.Wait(o, w.s.Now); wait <= 0 {
			out = append(out, o)
		} else if w.again == 0 || wait < w.again {
			w.again = wait
		}
	}
	return out
}

// take returns as many objects as there is room for, of which half is for the rest, the objects
// that come later. Where not all fit, the time decides which do: a cluster whose exports change all
// the time does not keep those of others waiting for ever.
func (w *writes) take(all []role.Object, rest int) []role.Object {
	most := w.left - min(rest, w.left/2)
	if len(all) > most {
		w.more = true
		start := int(w.s.Now.UnixMilli() % int64(len(all)))
		all = slices.Concat(all[start:], all[:start])[:most]
	}
	w.left -= len(all)
	return all
}

// objects returns the objects in a list.
func objects(list []metav1.Object) []role.Object {
	out := make([]role.Object, len(list))
	for i, o := range list {
		out[i] = o.(role.Object)
	}
	return out
}

// asObjects returns a list of objects of one kind as Objects.
func asObjects[T role.Object](list []T) []role.Object {
	out := make([]role.Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

// reportPages adds the pages that change. A page that changes all the time is written less often.
func (d *ServicePlan) reportPages(r *role.Report, s role.Snapshot) {
	have := map[string]*v1alpha1.ExportedServices{}
	for _, page := range role.List[*v1alpha1.ExportedServices](s) {
		have[page.Name] = page
	}
	changed := false
	for _, page := range d.pages {
		if was := have[page.Name]; was == nil || !reflect.DeepEqual(was.Spec, page.Spec) || !role.IsOurs(was) {
			r.Paced = append(r.Paced, role.Paced{Object: page, By: []string{page.Name}})
			changed = true
		}
	}
	if !changed { // a record that has moved is in its new page, and others can read that
		r.Delete = append(r.Delete, asObjects(d.spare)...)
	}
}

// endpointSlices returns the EndpointSlices to apply: those that exist, in which endpoints may be
// gone, and those that do not.
func (d *ServicePlan) endpointSlices(s role.Snapshot) (existing, missing []role.Object) {
	for _, o := range d.imported.Slices {
		if s.Same(o) != nil {
			existing = append(existing, o)
		} else {
			missing = append(missing, o)
		}
	}
	return existing, missing
}

// exportStatuses returns the ServiceExports whose conditions change, and warns of conflicts.
func (d *ServicePlan) exportStatuses(r *role.Report, now time.Time) []role.Object {
	var out []role.Object
	for _, e := range d.exports {
		for _, c := range e.Conditions {
			if c.Type == string(mcsv1alpha1.ServiceExportConditionConflict) && c.Status == metav1.ConditionTrue {
				r.Warn = append(r.Warn, role.Warning{About: e.Export, Condition: c})
			}
		}
		conditions := slices.DeleteFunc(slices.Clone(e.Export.Status.Conditions), func(c metav1.Condition) bool {
			return d.isOurCondition(c) && meta.FindStatusCondition(e.Conditions, c.Type) == nil
		})
		for _, c := range e.Conditions {
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
			meta.SetStatusCondition(&conditions, c)
		}
		if !sameConditions(conditions, e.Export.Status.Conditions) {
			next := e.Export.DeepCopy()
			next.Status.Conditions = conditions
			out = append(out, next)
		}
	}
	return out
}

// isOurCondition reports whether this agent writes a condition of ServiceExports. With a global
// network, the globalnet agent writes most of them.
func (d *ServicePlan) isOurCondition(c metav1.Condition) bool {
	switch c.Type {
	case string(mcsv1alpha1.ServiceExportConditionConflict), services.ConditionPublished:
		return true
	case string(mcsv1alpha1.ServiceExportConditionValid), string(mcsv1alpha1.ServiceExportConditionReady):
		return !d.global
	}
	return false
}

// importStatuses returns the ServiceImports whose status changes. An import whose derived Service
// is refused is not Ready, with the reason.
func (d *ServicePlan) importStatuses(s role.Snapshot, now time.Time) []role.Object {
	refused := map[types.NamespacedName]role.RefusedWrite{}
	for _, service := range d.imported.Services {
		if why, is := s.Refused[role.RefusedKey(service)]; is {
			refused[types.NamespacedName{
				Namespace: service.Namespace,
				Name:      service.Labels[mcsv1alpha1.LabelServiceName],
			}] = why
		}
	}
	next := map[types.NamespacedName]*mcsv1alpha1.ServiceImport{}
	for _, i := range d.imported.Statuses {
		next[role.KeyOf(i)] = i.DeepCopy()
	}
	var out []role.Object
	for _, have := range role.List[*mcsv1alpha1.ServiceImport](s) {
		i := next[role.KeyOf(have)]
		why := refused[role.KeyOf(have)]
		if i == nil && why.Message == "" {
			continue
		}
		if i == nil {
			i = have.DeepCopy()
		}
		if why.Message != "" {
			setCondition(&i.Status.Conditions, metav1.Condition{
				Type: string(
					mcsv1alpha1.ServiceImportConditionReady),
				Status: metav1.ConditionFalse,
				Reason: ReasonRefused,
				Message: role.Clip(
					"the derived Service cannot be created, so DNS servers answer with addresses of the " +
						"exporters: " + why.Message,
				),
				ObservedGeneration: have.Generation,
			}, have.Status.Conditions, now)
		}
		for k := range i.Status.Conditions {
			if c := &i.Status.Conditions[k]; c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
			}
		}
		if !reflect.DeepEqual(i.Status, have.Status) {
			i.ResourceVersion = have.ResourceVersion
			out = append(out, i)
		}
	}
	return out
}

// setCondition replaces the condition of a type. It keeps the time of the condition that was there
// before, among old, if the status is the same.
func setCondition(all *[]metav1.Condition, c metav1.Condition, old []metav1.Condition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	if was := meta.FindStatusCondition(old, c.Type); was != nil && was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	*all = slices.DeleteFunc(*all, func(other metav1.Condition) bool { return other.Type == c.Type })
	*all = append(*all, c)
}

// sameConditions reports whether two lists have the same conditions, in the same order and since
// the same time.
func sameConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.Condition) bool {
		same := x.LastTransitionTime.Time.Equal(y.LastTransitionTime.Time)
		x.LastTransitionTime = y.LastTransitionTime
		return same && x == y
	})
}
