// Package policy decides which cable a pair of clusters gets. The decision is a pure
// function of the clusters and of the CablePolicies: both ends of a pair compute it from
// the same objects, with the same result.
//
// A policy is a list of rules. A rule matches a pair if its two selectors select the two
// clusters, in either order. Only policies of clustersets that contain both clusters
// apply. The matching rules take precedence in this order:
//
//   - rules of other policies before rules of the policy named "default";
//   - rules with more requirements in both selectors together;
//   - rules of the policy with the lower name;
//   - within a policy, earlier rules.
//
// If no rule matches, the clusters' own default driver decides, if it is the same.
//
// # Third parties
//
// Encryption can be removed only by the parties that it protects: the two clusters of a pair, and
// the broker. A third party is any other cluster that made a policy. Its policies can only make
// the cable of the pair more secret: from a cable that does not encrypt to none, as a requirement
// or a driver that is unknown here does, and from either to a cable that encrypts.
//
// The decision of the parties is the decision of the broker's policies, of the policies of
// the two clusters, and of their default drivers. A third party takes part with its first rule
// that matches the pair, if that takes precedence over the rule of the parties. The decision with
// the highest Secrecy is taken; of several, the one whose rule takes precedence. The other rules
// that would take precedence are set aside. So adding or changing policies of one third party
// removes neither what the parties decide nor what another third party adds. A third party can
// still disconnect a pair, with a driver that one of the two clusters does not offer: then
// traffic stops, and is not sent in clear text.
//
// # Invalid policies
//
// A policy that Check rejects is neither shared nor copied (package broker ensures
// this): the previous version stays in force. A Book may still contain such a policy, for
// example one of a newer version. Then an invalid rule must not lead to a weaker cable
// than it specifies:
//
//   - A rule with an unknown driver still decides: its pairs get no cable, and both ends
//     report the reason. The next rule does not replace it.
//   - A rule with an invalid selector decides nothing, since the pairs that it selects are
//     unknown, and matching every pair would disconnect a whole clusterset because of a
//     typing error. But if its driver encrypts, the pairs that its valid requirements
//     match get no cable without encryption.
//   - If the settings for the driver are invalid, the driver is used, and the Decision
//     reports the error. So it does while the settings of a ConfigMap that the rule names have
//     not been copied yet, which is valid.
//
// A policy that is not on the broker does not apply, since the other clusters do not
// have it.
//
// # Required encryption
//
// A cluster, or a rule that matches a pair, can require encryption. Then the pair never gets a
// cable without encryption, even if another rule, with any precedence, or the clusters' default
// driver decides. This includes invalid rules whose valid requirements match the pair.
package policy

import (
	"errors"
	"fmt"

	"subctl/cable"
)

// Cluster is one end of a pair.
type Cluster struct {
	ID     string
	Labels map[string]string // of its Cluster object
	Sets   []string          // the clustersets of which it is a member
	Driver string            // its default driver, used where no policy decides
	// MustEncrypt reports whether the cluster requires encryption.
	MustEncrypt bool
}

// SharesSet reports whether the cluster has a clusterset in common with another one. Only then can
// they be connected.
func (c Cluster) SharesSet(other Cluster) bool { return common(c.Sets, other.Sets) }

// Decision is the result for a pair of clusters.
type Decision struct {
	// Driver is the canonical name of the cable driver; empty if Err is not nil.
	Driver string
	// Policy is the name of the policy that decided; empty if none did.
	Policy string
	// Rule is the index of the rule in that policy, counted from 0.
	Rule int
	// Maker is the ID of the cluster that made that policy, or submarinerv1.BrokerID. Several
	// clusters may have policies of one name.
	Maker string
	// Config holds the policy's settings for the driver; nil if there are none.
	Config cable.Config
	// ConfigErr is the error in the policy's settings; Config is nil then.
	ConfigErr error
	// Err is the reason why the pair has no cable.
	Err error
	// MustEncrypt names what requires that the pair is never connected without encryption: a
	// cluster or a rule, the same at both ends. It is empty if nothing does.
	MustEncrypt string
	// SetAside are the rules of third parties that would decide, but that are weaker than the
	// decision, in order of precedence.
	SetAside []RuleRef
}

// Number returns the number of the rule that decided, counted from 1 as people count; 0 if no
// policy decided.
func (d Decision) Number() int {
	if d.Policy == "" {
		return 0
	}
	return d.Rule + 1
}

// ForbidsPlain reports whether the pair must not be connected without encryption: encryption is
// required, or an invalid rule that may match the pair specifies a driver that encrypts, or the
// rule that decides specifies an unknown driver, which may encrypt.
func (d Decision) ForbidsPlain() bool {
	return d.MustEncrypt != "" || errors.As(d.Err, &withheld{}) || errors.As(d.Err, &unknownDriver{})
}

// Same reports whether d and other lead to the same cable, whichever policies decided.
func (d Decision) Same(other Decision) bool {
	return d.Driver == other.Driver && equal(d.Config, other.Config) && text(d.ConfigErr) == text(other.ConfigErr) &&
		text(d.Err) == text(other.Err)
}

// undecided returns the decision for a pair that no rule matches.
func undecided(x, y Cluster) Decision {
	dx := cable.Canonical(x.Driver)
	dy := cable.Canonical(y.Driver)
	if dx != dy {
		return Decision{Err: defaultsDiffer{ordered(x.ID, dx, y.ID, dy)}}
	}
	return Decision{Driver: dx}
}

// Errors of pairs name both clusters, the lower ID first, so that both ends report the
// same text. They are formatted only when they are read, since there may be half a
// million of them.

type ends struct{ id1, what1, id2, what2 string }

func ordered(x, whatX, y, whatY string) ends {
	if y < x {
		return ends{y, whatY, x, whatX}
	}
	return ends{x, whatX, y, whatY}
}

type defaultsDiffer struct{ ends }

func (e defaultsDiffer) Error() string {
	return fmt.Sprintf(
		"no cable policy matches, and the default drivers differ (cluster %s: %s, cluster %s: %s): create a policy (subctl cable-policy add --name default), or join both clusters with the same --cable-driver",
		e.id1, e.what1, e.id2, e.what2)
}

type nothingShared struct{ ends }

func (e nothingShared) Error() string {
	return fmt.Sprintf("clusters %s and %s have no clusterset in common", e.id1, e.id2)
}

// withheld is the error of a pair that gets no unencrypted cable, because an invalid rule
// that requires an encrypted one may match the pair.
type withheld struct {
	rule   *rule
	driver string
}

func (e withheld) Error() string {
	return fmt.Sprintf(
		"%s specifies %s and may match this pair, but is invalid: %v: until it is corrected, the pair gets no %s cable, which is not encrypted",
		e.rule.name(), e.rule.driver, e.rule.mistake, e.driver)
}

// unknownDriver is the error of a pair for which a rule with an unknown driver decides.
type unknownDriver struct{ rule *rule }

func (e unknownDriver) Error() string { return fmt.Sprintf("%s: %v", e.rule.name(), e.rule.driverErr) }

func (e unknownDriver) Unwrap() error { return e.rule.driverErr }

// clearText is the error of a pair that gets no unencrypted cable, because encryption is
// required.
type clearText struct {
	by      string // see Decision.MustEncrypt
	decider *rule  // nil: the clusters' default driver
	driver  string
}

func (e clearText) Error() string {
	decider := "the clusters' own default"
	if e.decider != nil {
		decider = e.decider.name()
	}
	return fmt.Sprintf(
		"%s requires encryption, but %s specifies %s, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		e.by, decider, e.driver)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
