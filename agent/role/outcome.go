package role

import (
	"time"
)

// Outcome is the result of a plan.
type Outcome struct {
	// Err is the reason why the node does not hold the plan; nil if the node was seen to
	// hold it.
	Err error
	// Broken has the reasons why the node does not hold single cables, by the name of the
	// cable or, for a cable that carries no traffic yet or any more, of its probe. An error
	// that concerns more than some cables breaks all of them.
	Broken map[string]error
	// Detours is the reason why the node does not hold detours through other gateways of its
	// cluster, which it uses only if the devices of cables disappear; nil if it does.
	Detours error
	// Contained reports whether Err, if there is one, concerns only the cables in Broken, and
	// Detours: the node holds everything else.
	Contained bool
	// Conflicts describes objects of other programs on the node that affect ours.
	Conflicts []string
	// Health is the result of the probes, by name of the probe.
	Health Healths
	// Exchange is the state of the exchange with the broker; nil if this agent does not
	// take part in it.
	Exchange *ExchangeStatus
	Now      time.Time
}

// Failure returns the error of a condition or a report: without what concerns some cables
// only, which their connections report.
func (o Outcome) Failure() error {
	if o.Contained {
		return nil
	}
	return o.Err
}
