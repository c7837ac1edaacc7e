package controller

import (
	"slices"

	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

// What a CNF should hold, and what is to be done, are lists for each collection; plan compares them
// with what the CNF returned. It does no I/O.

// wanted is an object that a CNF should hold.
type wanted struct {
	object rest.Object
	// trusted is true if the status of the rule says that all pods hold the object: fields that a
	// CNF does not return are then taken for right.
	trusted bool
}

// desire is the desired state of a collection of a CNF.
type desire struct {
	collection *rest.Collection
	objects    []wanted // in order, with distinct names
	// keep reports whether an object that is not wanted stays: because a rule that is wrong left it
	// there, or because the administrator keeps it. It is not nil.
	keep func(name string) bool
	// ours reports whether a rule, right or wrong, has a name; nil if that does not matter.
	ours func(name string) bool
	// deleted are the names of rules that are being deleted: sync reports which of them the pod
	// still has.
	deleted []string
}

// op is a change of a collection.
type op struct {
	verb   verb
	object rest.Object // nil for remove
	name   string
}

type verb int

const (
	create verb = iota
	update
	move   // to the end of the collection: delete and create
	remove // an object that nobody wants
)

// listing is a collection as a CNF has returned it.
type listing struct {
	items []restclient.Item
	first map[string]int  // where the first object with a name is
	twice map[string]bool // names of several objects: OpenWrt accepts that
}

func newListing(items []restclient.Item) listing {
	l := listing{items, make(map[string]int, len(items)), map[string]bool{}}
	for i, item := range items {
		if _, ok := l.first[item.Name]; ok {
			l.twice[item.Name] = true
			continue
		}
		l.first[item.Name] = i
	}
	return l
}

// has reports whether there is an object with a name.
func (l listing) has(name string) bool { _, ok := l.first[name]; return ok }

// plan returns the changes of a collection, except those of the order: see moves. What nobody wants
// goes last: see leftovers.
func plan(d desire, have listing, holds func(wanted, restclient.Item) bool) []op {
	var ops []op
	for _, w := range d.objects {
		name := w.object.GetName()
		switch at, ok := have.first[name]; {
		case !ok:
			ops = append(ops, op{create, w.object, name})
		case have.twice[name] || !holds(w, have.items[at]):
			ops = append(ops, op{update, w.object, name})
		}
	}
	return ops
}

// moves returns the changes after which the objects that a collection has are in the order in which
// they are wanted. Objects can only be appended: those that already stand in order at the beginning
// stay, and all others move to the end, one by one. Moves are the last that is done to a
// collection, as a CNF on OpenWrt moves what it changes to the end. What the CNF has refused to
// change stays where it is, as it would be lost.
func moves(d desire, have listing, refused func(name string) bool) []op {
	var ops []op
	if !ordered(d.collection) {
		return nil
	}
	last := -1
	for _, w := range d.objects {
		at, ok := have.first[w.object.GetName()]
		if !ok || refused(w.object.GetName()) {
			continue
		}
		if len(ops) == 0 && at > last {
			last = at
			continue
		}
		ops = append(ops, op{move, w.object, w.object.GetName()})
	}
	return ops
}

// leftovers returns the removals of objects that nobody wants, the newest first.
func leftovers(d desire, have listing) []op {
	want := make(map[string]bool, len(d.objects))
	for _, w := range d.objects {
		want[w.object.GetName()] = true
	}
	var ops []op
	for i, item := range slices.Backward(have.items) {
		if have.first[item.Name] == i && !want[item.Name] && !d.keep(item.Name) {
			ops = append(ops, op{remove, nil, item.Name})
		}
	}
	return ops
}

// ordered reports whether the first object that matches decides, so that the order matters.
func ordered(l *rest.Collection) bool {
	return slices.Contains([]*rest.Collection{
		rest.Rules, rest.FirewallRules, rest.Redirects, rest.NetworkRules, rest.NATs, rest.RouteRules,
	}, l)
}
