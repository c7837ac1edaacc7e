package sdewan

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// Check returns the mistakes of a rule that a CNF would report and that the schema does not find,
// such as certificates that do not match their keys. It knows neither the networks of the CNF nor
// its other rules.
func Check(r Rule) error {
	k, ok := KindOf(r)
	if !ok {
		return nil
	}
	networks := Networks{}
	switch r := r.(type) {
	case *batch.Mwan3Policy:
		for _, m := range r.Spec.Members {
			networks[string(m.Network)] = string(m.Network)
		}
	case *batch.FirewallZone:
		for _, n := range r.Spec.Networks() {
			networks[string(n)] = string(n)
		}
	}
	if r, ok := r.(*batch.CNFService); ok {
		return k.Collection.Check(RenderCNFService(r, netip.IPv4Unspecified(), "tcp"))
	}
	o, err := k.Render(r, networks)
	if err != nil {
		return err
	}
	return asInSpec(k.Collection.Check(o))
}

// asInSpec returns the error of a CNF with the names of fields that rules have.
func asInSpec(err error) error {
	var refusal *rest.Refusal
	if errors.As(err, &refusal) {
		for i, p := range refusal.Problems {
			// of a Remote; no other object that stands for a rule has this field
			if what, ok := strings.CutPrefix(p, "gateway: "); ok {
				refusal.Problems[i] = "remote: " + what
			}
		}
	}
	return err
}

// Doubts returns warnings about a rule that Check accepts: a misspelt field, or why the rule does
// not work at a time, such as certificates that have expired.
func Doubts(r Rule, now time.Time) []string {
	if z, ok := r.(*batch.FirewallZone); ok && len(z.Spec.Newtork) > 0 {
		return []string{"spec.newtork is read as spec.network: correct the spelling"}
	}
	if k, ok := KindOf(r); ok && k.Collection == rest.Remotes {
		if o, err := k.Render(r, nil); err == nil {
			return rest.Trimmed(o).(*rest.Remote).Doubts(now)
		}
	}
	return nil
}
