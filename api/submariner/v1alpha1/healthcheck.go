package v1alpha1

import (
	"cmp"
	"time"
)

// HealthCheckSpec specifies how cables are probed.
type HealthCheckSpec struct {
	// Enabled specifies whether cables are probed.
	Enabled bool `json:"enabled,omitempty"`
	// IntervalSeconds is the time between pings, in seconds, at most 3600; 0 means 1.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds uint64 `json:"intervalSeconds,omitempty"`
	// MaxPacketLossCount is the number of consecutive pings that may be lost, at most 1000; 0 means
	// 5.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxPacketLossCount uint64 `json:"maxPacketLossCount,omitempty"`
}

// The defaults and limits of HealthCheckSpec. Whoever wants no pings disables them.
const (
	DefaultHealthCheckInterval = 1    // seconds
	HealthCheckIntervalLimit   = 3600 // seconds
	DefaultMaxPacketLossCount  = 5
	PacketLossCountLimit       = 1000
)

// HealthCheck returns how cables are probed, with the default of every field that is not
// set.
func (s SubmarinerSpec) HealthCheck() HealthCheckSpec {
	hc := HealthCheckSpec{Enabled: true}
	if s.ConnectionHealthCheck != nil {
		hc = *s.ConnectionHealthCheck
	}
	hc.IntervalSeconds = cmp.Or(hc.IntervalSeconds, DefaultHealthCheckInterval)
	hc.MaxPacketLossCount = cmp.Or(hc.MaxPacketLossCount, DefaultMaxPacketLossCount)
	return hc
}

// Interval returns the time between pings.
func (hc HealthCheckSpec) Interval() time.Duration {
	return time.Duration(hc.IntervalSeconds) * time.Second
}
