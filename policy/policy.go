// Package policy decides which cable a pair of clusters gets. It is a pure function
// of the clusters and of the CablePolicies: both ends of a pair compute it from the
// same objects, and come to the same answer.
//
// A policy is a list of rules. A rule matches a pair if one of its selectors selects
// one cluster and the other the other, either way round. Only policies of clustersets
// that both clusters are in count. Of the rules that match
//
//   - the most specific one decides: that with the most requirements in both of its
//     selectors together;
//   - among those, the one of the policy whose name comes first, and within a policy
//     the earlier rule;
//   - those of the policy named "default" only if no other matches.
//
// Where no rule matches, the clusters' own default driver decides, if they have the
// same.
//
// # What cannot be understood
//
// A policy with a mistake that Check finds is neither shared nor copied (package broker
// sees to it): what was in force before stays. A Book works with such a policy all the
// same, say with one of a newer version, and then no mistake may lead to a weaker cable
// than somebody asked for:
//
//   - A rule that names an unknown driver decides all the same: its pairs have no cable
//     by it, and both ends say why. The next best rule does not step in.
//   - A rule with a mistake in a selector decides nothing, for nobody knows which pairs
//     it is about; and to let it match everything would cut a whole clusterset off for
//     the sake of a typing mistake. But if the cable it asks for is encrypted, the pairs
//     that its other requirements match get no cable that is not.
//   - Where settings for the driver are wrong, the driver stands, and the Decision says
//     that its settings could not be read.
//
// What is not on the broker, or not yet, does not count: the other clusters do not
// know it.
package policy

import (
	"fmt"

	"subctl/cable"
)

// Cluster is one end of a pair.
type Cluster struct {
	ID     string
	Labels map[string]string // of its Cluster object
	Sets   []string          // the clustersets it is in
	Driver string            // its own default, which counts where no policy does
}

// Decision is the cable of a pair.
type Decision struct {
	// Driver is the canonical name of the cable driver; empty if Err is not nil.
	Driver string
	// Policy is the name of the policy that decided; empty if none did.
	Policy string
	// Rule is the number of the rule in that policy, counted from 0.
	Rule int
	// Config is what the policy sets for the driver; nil if nothing.
	Config cable.Config
	// ConfigErr says why what the policy sets cannot be used; Config is nil then.
	ConfigErr error
	// Err says why the pair has no cable.
	Err error
}

// Same says whether a pair would notice no difference between two decisions, whoever
// made them.
func (d Decision) Same(other Decision) bool {
	return d.Driver == other.Driver && equal(d.Config, other.Config) && text(d.ConfigErr) == text(other.ConfigErr) && text(d.Err) == text(other.Err)
}

// undecided is the decision where no rule makes one.
func undecided(x, y Cluster) Decision {
	dx, dy := cable.Canonical(x.Driver), cable.Canonical(y.Driver)
	if dx != dy {
		return Decision{Err: defaultsDiffer{ordered(x.ID, dx, y.ID, dy)}}
	}
	return Decision{Driver: dx}
}

// Errors of pairs name both clusters, the lower ID first, so that both ends say the
// same. They are put into words only when somebody reads them: there may be half a
// million.

type ends struct{ id1, what1, id2, what2 string }

func ordered(x, whatX, y, whatY string) ends {
	if y < x {
		return ends{y, whatY, x, whatX}
	}
	return ends{x, whatX, y, whatY}
}

type defaultsDiffer struct{ ends }

func (e defaultsDiffer) Error() string {
	return fmt.Sprintf("no cable policy decides, and cluster %s uses %s by default, cluster %s %s: make a policy (subctl cable-policy add --name default), or join both with one --cable-driver",
		e.id1, e.what1, e.id2, e.what2)
}

type nothingShared struct{ ends }

func (e nothingShared) Error() string {
	return fmt.Sprintf("clusters %s and %s have no clusterset in common", e.id1, e.id2)
}

// held is the error of a pair that would get an unencrypted cable instead of the
// encrypted one of a rule with a mistake.
type held struct {
	rule   *rule
	driver string
}

func (e held) Error() string {
	return fmt.Sprintf("%s asks for %s, and may mean this pair, but has a mistake: %v: until that is put right there is no %s cable instead, which is not encrypted",
		e.rule.name(), e.rule.driver, e.rule.mistake, e.driver)
}

// encrypts says whether a driver's cables are encrypted. What is unknown counts as
// encrypted: somebody may have asked for that.
func encrypts(driver string) bool { return driver != cable.VXLAN }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
