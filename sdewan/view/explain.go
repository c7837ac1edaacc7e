package view

import (
	"fmt"
	"strings"

	"subctl/sdewan"
)

// Explanation is the meaning of a rule; its JSON is a promise.
type Explanation struct {
	Namespace string   `json:"namespace"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Purpose   string   `json:"purpose"`
	CNF       string   `json:"cnf"` // the Deployment, "" if there is none
	Pods      []string `json:"pods"`
	InSync    bool     `json:"inSync"`
	State     string   `json:"state"`
	Needs     []string `json:"needs"`  // other rules, and their state
	UsedBy    []string `json:"usedBy"` // rules that need this one
	// rules, of any kind, that decide before it about packets that it may match, in this order
	After   []string `json:"after"`
	Matches string   `json:"matches"`
	Does    string   `json:"does"`
}

// Explain explains a rule.
func (v *View) Explain(r sdewan.Rule) Explanation {
	k, _ := sdewan.KindOf(r)
	s := v.State(r)
	e := Explanation{
		Namespace: r.GetNamespace(),
		Kind:      KindName(r),
		Name:      r.GetName(),
		Purpose:   r.GetLabels()[sdewan.PurposeLabel],
		Pods: append(
			[]string{},
			s.Pods...),
		InSync: s.InSync,
		State:  s.String(),
		Needs:  []string{},
		UsedBy: []string{},
		After:  []string{},
	}
	for _, u := range k.Uses(r) {
		e.Needs = append(e.Needs, fmt.Sprintf("%s (%s): %s", u, u.Field, v.used(r, u)))
	}
	for _, other := range v.Rules {
		ok, _ := sdewan.KindOf(other)
		if !neighbours(r, other) {
			continue
		}
		for _, u := range ok.Uses(other) {
			if u.Collection == k.Collection && u.Name == r.GetName() && u.Kind == KindName(r) {
				e.UsedBy = append(e.UsedBy, KindName(other)+" "+other.GetName())
				break
			}
		}
	}
	cnfs := v.Of(r)
	if len(cnfs) != 1 {
		return e
	}
	e.CNF = cnfs[0].Deployment.Name
	// unrendered has the error
	networks, _ := sdewan.ParseNetworks(cnfs[0].Deployment.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	e.After = append(e.After, v.before(r, k, networks)...)
	config, _ := v.Config(cnfs[0])
	if o, ok := config.Get(k.Collection, r.GetName()); ok {
		e.Matches, e.Does = words(o, config)
	} else if err := v.unrendered(k, r, cnfs[0]); err != nil {
		e.Does = "nothing, as far as can be seen here: " + err.Error()
	}
	return e
}

// unrendered returns why no object stands for a rule on a CNF.
func (v *View) unrendered(k sdewan.Kind, r sdewan.Rule, c CNF) error {
	networks, err := sdewan.ParseNetworks(c.Deployment.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	if err != nil {
		return err
	}
	_, err = v.render(k, r, networks)
	return err
}

// String returns the state as people read it.
func (s State) String() string {
	if !s.InSync {
		return fmt.Sprintf("not in sync: %s: %s", s.Reason, s.Message)
	}
	return strings.TrimSpace(fmt.Sprintf("in sync: all pods have version %s since %s", s.Version, s.Since))
}

// neighbours reports whether two rules apply to the same CNF.
func neighbours(a, b sdewan.Rule) bool {
	return a.GetNamespace() == b.GetNamespace() &&
		a.GetLabels()[sdewan.PurposeLabel] == b.GetLabels()[sdewan.PurposeLabel]
}

// used returns the state of a rule that another one needs.
func (v *View) used(r sdewan.Rule, u sdewan.Use) string {
	for _, other := range v.Rules {
		if neighbours(r, other) && KindName(other) == u.Kind && other.GetName() == u.Name {
			if v.State(other).InSync {
				return "in sync"
			}
			return "not in sync"
		}
	}
	return "does not exist"
}
