package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// TestWalk changes rules, pods and the controller at random. In the end, each pod has exactly the
// rules of the API server, in their order, without duplicates, and so it has after every tenth
// change.
func TestWalk(t *testing.T) {
	w := newWorld(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	purposes := []string{"cnf-1", "cnf-2"}
	for _, p := range purposes {
		w.cnf(p, 2)
	}
	stop := w.run()
	running := true
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	policies := []string{"p", "q"}
	rules := []string{"a", "b", "c", "d", "e"}
	exists := func(o client.Object) bool { return w.client.Get(w.Context(), client.ObjectKeyFromObject(o), o) == nil }
	ignore := func(err error) {
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	for step := range 60 {
		purpose := pick(purposes...)
		switch action := random.IntN(12); action {
		case 0, 1:
			ignore(w.client.Create(t.Context(), w.policy(purpose, pick(policies...))))
		case 2, 3, 4, 5:
			ignore(
				w.client.Create(t.Context(),
					w.rule(purpose, pick(rules...), pick(policies...), strconv.Itoa(1+random.IntN(100)))),
			)
		case 6, 7:
			if r := w.rule(purpose, pick(rules...), "", ""); exists(r) {
				r.Spec.Policy = batch.ObjectName(pick(policies...))
				set(&r.Spec.DestPort, strconv.Itoa(1+random.IntN(100)))
				if random.IntN(4) == 0 {
					r.Labels[sdewan.PurposeLabel] = purpose
				}
				ignore(w.client.Update(t.Context(), r))
			}
		case 8:
			ignore(w.client.Delete(t.Context(), w.rule(purpose, pick(rules...), "", "")))
		case 9:
			name := pick(rules...) // renamed within a second
			ignore(w.client.Delete(t.Context(), w.rule(purpose, name, "", "")))
			ignore(w.client.Create(t.Context(), w.rule(purpose, name+"-new", pick(policies...), "7")))
			ignore(w.client.Delete(t.Context(), w.rule(purpose, pick(rules...)+"-new", "", "")))
		case 10:
			pods := w.pods(purpose)
			if len(pods) == 0 { // both were killed a moment ago
				break
			}
			if p := pods[random.IntN(len(pods))]; random.IntN(2) == 0 {
				w.kill(p)
			} else {
				p.Reset()
				w.restarted(p.name, int32(step))
			}
		case 11:
			if stop(); running && random.IntN(2) == 0 {
				running = false
				break
			}
			stop = w.run()
			running = true
		}
		if step%20 == 19 {
			if !running {
				stop = w.run()
				running = true
			}
			for _, p := range purposes {
				w.converged(p)
			}
		}
	}
}

// converged waits until all pods of a CNF hold what the API server has.
func (w *world) converged(purpose string) {
	w.Helper()
	w.eventually(func() error {
		pods := w.pods(purpose)
		if err := twoPods(pods); err != nil {
			return err
		}
		var policies batch.Mwan3PolicyList
		var rules batch.Mwan3RuleList
		in := []client.ListOption{client.InNamespace(w.namespace), client.MatchingLabels{sdewan.PurposeLabel: purpose}}
		if err := errors.Join(w.client.List(w.Context(), &policies, in...),
			w.client.List(w.Context(), &rules, in...)); err != nil {
			return err
		}
		var wantPolicies, wantRules, pending []string
		var order []sdewan.Rule
		for i := range policies.Items {
			if !policies.Items[i].DeletionTimestamp.IsZero() {
				continue // in use: its rules refer to it
			}
			wantPolicies = append(wantPolicies, policies.Items[i].Name)
		}
		for i := range rules.Items {
			r := &rules.Items[i]
			if !r.DeletionTimestamp.IsZero() {
				return fmt.Errorf("rule %s is not gone: %+v", r.Name, r.Status)
			}
			if slices.Contains(wantPolicies, string(r.Spec.Policy)) {
				order = append(order, r)
			} else if pending = append(pending, r.Name); r.Status.InSync { // a CNF may hold it as it was
				return fmt.Errorf("rule %s is in sync without its policy", r.Name)
			}
		}
		slices.SortFunc(order, sdewan.Order)
		for _, r := range order {
			if s := r.RuleStatus(); !s.InSync || s.ObservedGeneration != r.GetGeneration() {
				return fmt.Errorf("%s is not in sync: %+v", r.GetName(), *s)
			}
			wantRules = append(wantRules, r.GetName())
		}
		for _, p := range pods {
			has := p.EffectiveNames(rest.Policies)
			slices.Sort(has)
			slices.Sort(wantPolicies)
			if !slices.Equal(has, wantPolicies) {
				return fmt.Errorf("%s has policies %q, not %q", p.name, has, wantPolicies)
			}
			has = slices.DeleteFunc(p.EffectiveNames(rest.Rules),
				func(n string) bool { return slices.Contains(pending, n) })
			if !slices.Equal(has, wantRules) {
				return fmt.Errorf("%s has rules %q, not %q", p.name, has, wantRules)
			}
			for _, r := range order {
				r := r.(*batch.Mwan3Rule)
				if port := p.Field(rest.Rules, r.Name, "dest_port"); port != string(r.Spec.DestPort) {
					return fmt.Errorf("%s has port %v for %s, not %s", p.name, port, r.Name, r.Spec.DestPort)
				}
			}
		}
		return nil
	})
}
