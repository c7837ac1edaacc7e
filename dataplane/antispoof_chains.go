package dataplane

import "slices"

// The chains of Antispoof. Those without a hook are jumped to.
const (
	AntispoofInput       = "input"
	AntispoofVXLAN       = "vxlan"
	AntispoofWay         = "way"
	AntispoofForward     = "forward"
	AntispoofUnforwarded = "unforwarded"
	AntispoofPorts       = "ports"
	AntispoofTransit     = "transit"
	AntispoofClosed      = "closed"
	AntispoofIn          = "prerouting"
	AntispoofForeign     = "foreign"
	AntispoofBeside      = "beside"
	AntispoofOut         = "postrouting"
	AntispoofApart       = "apart"
	AntispoofAbroad      = "abroad"
	AntispoofSiblings    = "siblings"
	AntispoofHanded      = "handed"
	AntispoofOutput      = "output"
	AntispoofLeaving     = "drop-leaving" // counts by destination inside the VXLAN packet
	AntispoofReturned    = "returned"
	AntispoofPongs       = "pongs"
	AntispoofICMP        = "icmp"
	AntispoofErrors      = "errors"
	AntispoofForged      = "drop-forged"      // counts by sender of the VXLAN packet
	AntispoofSource      = "drop-source"      // counts by source
	AntispoofDestination = "drop-destination" // counts by destination
	AntispoofNotThrough  = "drop-beside"      // counts by source
)

// The chains for packets that VXLAN packets have contained.
const (
	AntispoofArriving         = "arriving"
	AntispoofArrivedOwn       = "arrived-own"
	AntispoofArrivedICMP      = "arrived-icmp"
	AntispoofArrivedErrors    = "arrived-errors"
	AntispoofArrivedElsewhere = "arrived-elsewhere"
	// AntispoofIPv6 is in a table of family ip6 with the same name: see AntispoofFamily.
	AntispoofIPv6 = "arriving-ipv6"
)

// AntispoofChains are all chains that an Antispoof may have. The last four are of tables of agents
// from before the first release: the second one does not need them any more.
var AntispoofChains = []string{
	AntispoofInput, AntispoofVXLAN, AntispoofWay, AntispoofForward, AntispoofUnforwarded, AntispoofPorts,
	AntispoofTransit, AntispoofClosed, AntispoofIn, AntispoofForeign, AntispoofBeside, AntispoofOut, AntispoofApart,
	AntispoofAbroad, AntispoofSiblings, AntispoofHanded, AntispoofReturned, AntispoofPongs, AntispoofSource,
	AntispoofDestination, AntispoofOutput, AntispoofLeaving, AntispoofNotThrough, AntispoofICMP, AntispoofErrors,
	AntispoofArriving, AntispoofArrivedOwn, AntispoofArrivedICMP, AntispoofArrivedErrors, AntispoofArrivedElsewhere,
	AntispoofForged, "elsewhere", "icmp-inside", "errors-inside", "arrived",
}

// AntispoofPriority is the priority of the chains at the hooks "input", "forward" and "output":
// before the chains of iptables, which have 0 ("filter").
const AntispoofPriority = -10

// Priorities of the chains at the other hooks of Antispoof: as early as possible, and with the
// source that a packet leaves with.
const (
	AntispoofInPriority  = -290 // after "raw" (-300), before connection tracking (-200)
	AntispoofOutPriority = 300  // after all source translation ("srcnat" is 100)
	// AntispoofArrivingPriority is before fragments are put together (-400): each fragment has its
	// own sender.
	AntispoofArrivingPriority = -450
)

// AntispoofHook returns the hook of a chain and its priority; an empty hook for a chain that is
// jumped to.
func AntispoofHook(chain string) (hook string, priority int) {
	switch chain {
	case AntispoofArriving, AntispoofIPv6:
		return AntispoofIn, AntispoofArrivingPriority
	case AntispoofIn:
		return chain, AntispoofInPriority
	case AntispoofOut:
		return chain, AntispoofOutPriority
	case AntispoofInput, AntispoofForward, AntispoofOutput:
		return chain, AntispoofPriority
	}
	return "", 0
}

// AntispoofFamily returns the family of the table that has a chain.
func AntispoofFamily(chain string) string {
	if chain == AntispoofIPv6 {
		return "ip6"
	}
	return "ip"
}

// Chains returns the names of the chains that have rules, in order of their first rules; a chain
// that is jumped to comes first.
func (a Antispoof) Chains() (names []string) {
	for _, r := range a.Rules() {
		for _, name := range []string{r.Jump, r.Chain} {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
