package join

import (
	"errors"

	"subctl/broker"
)

// request is everything that decides about a join: what the user specified, the join
// file, and the facts about both sides.
type request struct {
	Options
	file   *broker.JoinFile
	member *Facts
	broker *BrokerFacts
}

// A check returns what the user should know before the cluster joins, and what keeps it
// from joining. Empty warnings are left out.
type check func(request) (warnings []string, err error)

// These are the checks, each in a file named after it. All of them run, so that all
// mistakes are reported at once. The first ones are about what the others need: without
// rights, and without a broker, the rest is not known.
var (
	firstChecks = []check{checkOptions, checkVersions, checkRights, checkBroker}
	checks      = []check{
		checkIdentity, checkClusterSets, checkNetworks, checkGateways, checkGlobalnet, checkDriver, checkConfigMap, checkAddress, checkImage,
	}
)

// check runs the checks.
func (r request) check() (warnings []string, err error) {
	var errs []error
	run := func(list []check) {
		for _, c := range list {
			texts, err := c(r)
			errs = append(errs, err)
			for _, text := range texts {
				if text != "" {
					warnings = append(warnings, text)
				}
			}
		}
	}
	run(firstChecks)
	if len(r.member.Denied) == 0 && len(r.broker.Denied) == 0 && r.broker.Broker != nil {
		run(checks)
	}
	return warnings, errors.Join(errs...)
}
