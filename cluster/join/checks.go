package join

import (
	"errors"
	"net/netip"

	"subctl/broker"
	"subctl/globalnet"
)

// request contains everything that a join depends on: the options, the join file, and the
// facts about the cluster and the broker.
type request struct {
	Options
	file   *broker.JoinFile // with the broker's address to use
	listed string           // the broker's address in the file
	// listedName is the name of the broker's certificate in the file.
	listedName string
	member     *Facts
	broker     *BrokerFacts
	// asked is the global network that the user asks for, and askedErr the mistakes in the options
	// about it. global is the global network to join with, as far as it is known before joining; it
	// is the zero Prefix if the cluster announces its own networks. See readGlobalnet.
	asked     globalnet.NetworkRequest
	askedErr  error
	global    netip.Prefix
	globalErr error
}

// A check returns warnings for the user, and an error if the cluster cannot join. Empty
// warnings are ignored.
type check func(request) (warnings []string, err error)

// These are all checks before joining. They are in the files checks_SUBJECT.go, and
// checkOptions is in options.go. All of them run, so that all mistakes are reported at once. Only
// if the user lacks rights, or there is no broker, firstChecks alone run, because the other facts
// are unknown then.
var (
	firstChecks = []check{checkOptions, checkVersions, checkRights, checkBroker}
	checks      = []check{
		checkIdentity, checkTrust, checkInvitation, checkClusterSets, checkNetworks, checkGateways, checkNodes,
		checkNodeLabels, checkGlobalnet, checkDriver, checkCables, checkNAT, checkConfigMap, checkAddress,
		checkGatewayProxy, checkImage,
	}
)

// check runs the checks, and returns all warnings and all errors.
func (r request) check() (warnings []string, err error) {
	if err := r.member.JoinedAs(r.ClusterID); err != nil {
		return nil, err
	}
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
