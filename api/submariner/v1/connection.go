package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Connection is the state of the cable to one remote endpoint.
type Connection struct {
	Status        ConnectionStatus `json:"status"`
	StatusMessage string           `json:"statusMessage"`
	// Endpoint is the remote endpoint, except that its Backend is the driver in use, as in
	// upstream. If there is no cable, it is the remote gateway's default driver; while the cable
	// cannot be decided, it is empty.
	Endpoint EndpointSpec `json:"endpoint"`
	// UsingIP is the remote address of the cable.
	// +optional
	UsingIP string `json:"usingIP,omitempty"`
	// UsingNAT reports whether there is NAT between the gateways.
	// +optional
	UsingNAT bool `json:"usingNAT,omitempty"`
	// Driver is the cable driver in use (our addition; upstream has only endpoint.backend).
	// +optional
	Driver string `json:"driver,omitempty"`
	// DesiredDriver is the cable driver that the pair should use. It differs from Driver while
	// the pair changes its cable.
	// +optional
	DesiredDriver string `json:"desiredDriver,omitempty"`
	// DriverReason is the reason why DesiredDriver is not the driver that the policy names, or that
	// is the clusters' default, such as "wireguard connects to one gateway of a cluster, and
	// cluster west has several: vxlan+wireguard is in its place"; empty if it is that driver (our
	// addition).
	// +optional
	DriverReason string `json:"driverReason,omitempty"`
	// ChangingSince is when the pair began to change to the cable that it should use, from another
	// cable or from none; nil once that cable has answered.
	// +optional
	ChangingSince *metav1.Time `json:"changingSince,omitempty"`
	// Device is the network device of the cable.
	// +optional
	Device string `json:"device,omitempty"`
	// Policy is the cable policy that chose the driver; empty if none did.
	// +optional
	Policy string `json:"policy,omitempty"`
	// Rule is the number of the rule of Policy, counted from 1; 0 if unknown, or if there is none.
	// +optional
	Rule int `json:"rule,omitempty"`
	// Settings are the driver's settings for this pair, by key, except those with their
	// default value.
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
	// PolicySettings are the Settings that the policy set.
	// +optional
	PolicySettings map[string]string `json:"policySettings,omitempty"`
	// Before is the previous cable of the pair, while it is still set up after this one took
	// over. A restarted agent plans both.
	// +optional
	Before *PreviousCable `json:"before,omitempty"`
	// PublicKey is the public key of the other cluster, in base64. A restarted agent goes on
	// with it while the other cluster's Cluster object is missing.
	// +optional
	PublicKey string `json:"publicKey,omitempty"`
	// Idle reports whether the cable is set up but carries no traffic yet, because it has not
	// answered. A restarted agent waits for the answer, too.
	// +optional
	Idle bool `json:"idle,omitempty"`
	// Silent reports whether the cable has stopped answering, so that it carries no traffic until
	// it answers again. A restarted agent waits for the answer, too.
	// +optional
	Silent bool `json:"silent,omitempty"`
	// Member reports whether packets to the remote cluster may take the cable: whether it is in the
	// next hop group of the cluster; nil if there is no cable, or if the report does not tell (our
	// addition).
	// +optional
	Member *bool `json:"member,omitempty"`
	// MemberReason is the reason why the cable is not in the group, such as "down since
	// 2026-03-01T12:00:00Z", or why it gets fewer packets than its weight says, such as "draining".
	// +optional
	MemberReason string `json:"memberReason,omitempty"`
	// Implementation is "kernel", or the name of the userspace program that handles the
	// cable's packets.
	// +optional
	Implementation string `json:"implementation,omitempty"`
	// MTU is the MTU of the cable, in bytes.
	// +optional
	MTU int `json:"mtu,omitempty"`
	// PathMTU is the MTU of the path to UsingIP, in bytes; 0 if unknown.
	// +optional
	PathMTU int `json:"pathMTU,omitempty"`
	// ReceivedBytes and SentBytes count what the cable has carried since its keys or its
	// program were last replaced; nil if unknown. Only encrypted cables are counted.
	// +optional
	ReceivedBytes *int64 `json:"receivedBytes,omitempty"`
	// +optional
	SentBytes *int64 `json:"sentBytes,omitempty"`
	// IsolationDrops counts the packets between the remote cluster and this gateway that were
	// dropped because their source or destination belongs to neither cluster, or to the wrong one,
	// such as packets for a third cluster; nil if unknown. All connections to the cluster have the
	// same number.
	// +optional
	IsolationDrops *int64 `json:"isolationDrops,omitempty"`
	// LastContact is the time at which the remote gateway was last known to answer through
	// the cable, to the interval at which Gateways are written; nil if never.
	// +optional
	LastContact *metav1.Time `json:"lastContact,omitempty"`
	// LastHandshake is the time at which the two gateways last agreed on keys; nil if unknown.
	// +optional
	LastHandshake *metav1.Time `json:"lastHandshake,omitempty"`
	// DetectedBy is what found that the cable does not carry packets, where there are several ways
	// to the cluster: "ping", "echo" or "large echo"; empty if it does, or if there is one way.
	// +optional
	DetectedBy string `json:"detectedBy,omitempty"`
	// DetectedAt is when DetectedBy found it; nil if DetectedBy is empty.
	// +optional
	DetectedAt *metav1.Time `json:"detectedAt,omitempty"`
	// LastFailure is the last failure that the same probes found, and that is over; nil while there
	// is one, or if there was none.
	// +optional
	LastFailure *CableFailure `json:"lastFailure,omitempty"`
	// Attempts lists the addresses tried by path discovery, with the results, as text.
	// +optional
	Attempts []string `json:"attempts,omitempty"`
	// LatencyRTT is the round trip time through the cable.
	// +optional
	LatencyRTT *LatencyRTT `json:"latencyRTT,omitempty"`
}

// StuckAfter is the time that a pair may take to change its cable before the change counts as
// stuck.
const StuckAfter = 30 * time.Second

// Stuck reports whether the pair has been changing its cable for StuckAfter.
func (c *Connection) Stuck(now time.Time) bool {
	return c.Status != Connected && c.ChangingSince != nil && now.Sub(c.ChangingSince.Time) >= StuckAfter
}

// ClearMeasurements removes the values that change although nothing happens: round trip
// times, counters, and the times of the last contact and the last handshake.
func (c *Connection) ClearMeasurements() {
	c.LatencyRTT = nil
	c.ReceivedBytes = nil
	c.SentBytes = nil
	c.IsolationDrops = nil
	c.LastHandshake = nil
	c.LastContact = nil
}

// CableFailure is a time in which a cable did not carry packets; its first two fields have the same
// meaning as in Connection.
type CableFailure struct {
	DetectedBy string      `json:"detectedBy"`
	DetectedAt metav1.Time `json:"detectedAt"`
	// RecoveredAt is when the cable answered the probes again, several times in a row.
	RecoveredAt metav1.Time `json:"recoveredAt"`
}

// PreviousCable describes a cable; its fields have the same meaning as in Connection.
type PreviousCable struct {
	Driver string `json:"driver"`
	Device string `json:"device"`
	// +optional
	Policy string `json:"policy,omitempty"`
	// +optional
	Rule int `json:"rule,omitempty"`
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
	// +optional
	PolicySettings map[string]string `json:"policySettings,omitempty"`
}

// LatencyRTT holds round trip times in the notation of Go's time.Duration, such
// as "404.351µs".
type LatencyRTT struct {
	Last    string `json:"last,omitempty"`
	Min     string `json:"min,omitempty"`
	Average string `json:"average,omitempty"`
	Max     string `json:"max,omitempty"`
	StdDev  string `json:"stdDev,omitempty"`
}
