package view

import (
	"fmt"
	"slices"

	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// Config returns what the REST API of a CNF with no other history holds when all its rules are in
// sync, and what is wrong with rules that cannot be applied.
func (v *View) Config(c CNF) (rest.Config, []string) {
	var out rest.Config
	// world has the error
	networks, _ := sdewan.ParseNetworks(c.Deployment.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	var problems []string
	owner := map[string]sdewan.Rule{}
	rules := v.RulesOf(c)
	slices.SortStableFunc(rules, sdewan.Order) // several kinds share a list
	for _, r := range rules {
		k, ok := sdewan.KindOf(r)
		if !ok || r.GetDeletionTimestamp() != nil {
			continue
		}
		name := KindName(r) + " " + r.GetName()
		key := k.Collection.String() + "/" + r.GetName()
		if first := owner[key]; first != nil && sdewan.Older(first, r) {
			problems = append(
				problems,
				fmt.Sprintf("%s: %s has the same name on the CNF and is older: rename one of them", name,
					KindName(first)),
			)
			continue
		}
		o, err := v.render(k, r, networks)
		if err != nil {
			problems = append(problems, name+": "+err.Error())
			continue
		}
		owner[key] = r
		out.Put(k.Collection, o)
	}
	return out, problems
}

// render returns the object that stands for a rule on a CNF with these networks.
func (v *View) render(k sdewan.Kind, r sdewan.Rule, networks sdewan.Networks) (rest.Object, error) {
	if s, ok := v.services[r]; ok {
		return s.object, s.err
	}
	return k.Render(r, networks)
}
