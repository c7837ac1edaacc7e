package controller

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// aim is what became of the rules of a CNF in the desired state of one pod. Pods of one CNF may
// differ in their networks. It has no objects: the aim of each pod is kept until its next sync
// ends.
type aim struct {
	// mistakes are the rules that cannot be on this pod, by UID.
	mistakes map[types.UID]problem
	// claims has the rule that stands for each object.
	claims map[id]types.UID
	// versions has the generation of each rule that was considered, and services the target of each
	// CNFService among them.
	versions map[types.UID]int64
	services services
}

// isFor reports whether a rule was considered as it is now, with the target that it has now.
func (a aim) isFor(r rule, now services) bool {
	generation, ok := a.versions[r.GetUID()]
	return ok && generation == r.GetGeneration() && a.services.targets[r.GetUID()].same(now.targets[r.GetUID()])
}

// aimOf returns what a pod with these networks should hold, and what became of each rule. What a
// rule that is wrong has left on the pod stays, until it is right or deleted.
func aimOf(
	rules []rule,
	networks sdewan.Networks,
	services services,
	unmanaged func(*rest.Collection, string) bool,
) (a aim, desires []desire) {
	a = aim{
		mistakes: map[types.UID]problem{},
		claims:   map[id]types.UID{},
		versions: make(map[types.UID]int64, len(rules)),
		services: services,
	}
	objects := map[*rest.Collection][]wanted{}
	kept := map[id]bool{}
	deleted := map[*rest.Collection][]string{}
	holder := map[id]rule{}
	for _, r := range rules { // the oldest first
		l := r.kind.Collection
		key := id{l, r.GetName()}
		a.versions[r.GetUID()] = r.GetGeneration()
		if r.deleting() {
			deleted[l] = append(deleted[l], r.GetName())
			continue
		}
		if older, taken := holder[key]; taken {
			a.mistakes[r.GetUID()] = problem{
				NameTaken,
				fmt.Sprintf(
					"on a CNF, %s %s would have the same name in %s: it is older, and counts; rename one of them",
					older.kind.GVK.Kind, older.GetName(), l),
			}
			continue
		}
		holder[key] = r
		a.claims[key] = r.GetUID()
		o, err := services.render(r, networks)
		if err != nil {
			a.mistakes[r.GetUID()] = problem{Invalid, oneLine(err)}
			kept[key] = true
			continue
		}
		objects[l] = append(objects[l], wanted{o, r.inSync()})
	}
	for _, l := range collections() {
		desires = append(
			desires,
			desire{
				collection: l,
				objects:    objects[l],
				keep:       func(name string) bool { return kept[id{l, name}] || unmanaged(l, name) },
				ours: func(name string) bool {
					_, is := holder[id{l, name}]
					return is || slices.Contains(deleted[l], name)
				},
				deleted: deleted[l],
			},
		)
	}
	return a, desires
}

// owes reports whether a service may have to be restarted on a pod that this controller has not
// seen before, although the pod holds what it should: if a rule does not count as applied, or is to
// be removed, another controller may have written it, and ended before the restart.
func owes(rules []rule, service string) bool {
	for _, r := range rules {
		if r.kind.Collection.Service == service && (r.deleting() || !r.inSync()) {
			return true
		}
	}
	return false
}

// on returns what is wrong with a rule on a pod that was synced; the zero problem if nothing is.
func (a aim) on(r rule, s synced) problem {
	l := r.kind.Collection
	key := id{l, r.GetName()}
	if p, ok := a.mistakes[r.GetUID()]; ok {
		return p
	}
	claimed := a.claims[key] != ""
	if r.deleting() && (claimed || !s.remains[key] && s.refused[key] == nil) {
		return problem{} // another rule with the name has taken over the object, or it is gone
	}
	if err := s.refused[key]; err != nil {
		return problem{Rejected, oneLine(err)}
	}
	if s.unsent[key] {
		return problem{Unfinished, s.stopped.Error()}
	}
	if s.waiting[l.Service] && (s.written[key] || !r.inSync()) {
		return problem{
			Unfinished,
			fmt.Sprintf("%s is restarted when all of its objects are sent: %v", l.Service, s.stopped),
		}
	}
	if err := s.restarts[l.Service]; err != nil {
		return problem{RestartFailed, fmt.Sprintf("restarting %s: %v", l.Service, err)}
	}
	if reason, ok := s.ineffective[key]; ok && !r.deleting() {
		return problem{NoEffect, reason}
	}
	if s.unlisted > 0 && !r.deleting() {
		return problem{
			NoEffect,
			fmt.Sprintf(
				"the pod has %d more objects without effect than it can list, and this may be one: first correct the rules whose reasons it lists (subctl sdewan show status)",
				s.unlisted),
		}
	}
	return problem{}
}
