package dataplane

import "strings"

// The reasons for which tables of nftables, and rp_filter, drop packets: short words that stay, for
// metrics and messages. DropReasons explains them.
const (
	DropFromElsewhere = "wrong-source"
	DropToElsewhere   = "wrong-destination"
	DropTransit       = "transit"
	DropBeside        = "beside-cable"
	DropForged        = "forged-sender"
	DropDevice        = "device-address"
	DropPort          = "agent-port"
	DropAnswer        = "unasked-answer"
	DropIPv6          = "ipv6"
	DropNoAddress     = "no-global-address"
	DropNotAccepted   = "not-accepted"
	DropUnknownSender = "unknown-sender"
	DropDetour        = "second-detour"
	DropReversePath   = "reverse-path"
)

// DropReasons explains the reasons, for people.
var DropReasons = map[string]string{
	DropFromElsewhere: "packets through a cable whose source or destination the cluster at its other end may not use",
	DropToElsewhere: "packets for another cluster whose source is not in the pod, Service or global networks of " +
		"this cluster",
	DropTransit: "packets from one other cluster for another one: nothing is passed on between clusters",
	DropBeside: "packets from networks of another cluster to pods or Services of this one that did not come " +
		"through a cable",
	DropForged:    "VXLAN packets from the wrong device or sender",
	DropDevice:    "packets forwarded to addresses of cable devices",
	DropPort:      "packets from other clusters to ports of the agents",
	DropAnswer:    "answers to pings or echoes that the node has not sent",
	DropIPv6:      "IPv6 packets through a cable",
	DropNoAddress: "packets for another cluster, while the gateway has no global address for them",
	DropNotAccepted: "packets through a cable for addresses that are no pods, Services or global addresses of this " +
		"cluster",
	DropUnknownSender: "packets to ports of cables or probes from hosts that are no gateways",
	DropDetour:        "packets that another gateway of this cluster hands over, while no cable of either works",
	DropReversePath: "packets that arrive on another device than the one that leads to their source, which Linux " +
		"drops where rp_filter is 1: also those that pods of other clusters send to this node beside the cables. To " +
		"accept them: sysctl -w net.ipv4.conf.all.rp_filter=2",
}

// DropReason returns the reason for which a rule of nftables with such a comment drops packets. It
// is empty for a rule of no plan, and for one that drops only what nobody need know of.
func DropReason(comment string) string {
	note, _, _ := strings.Cut(comment, " #")
	if DropReasons[note] == "" {
		return ""
	}
	return note
}
