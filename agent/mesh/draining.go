package mesh

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/internal/prefix"
)

// settled is the time after which the other nodes and clusters know that a gateway is draining, so
// that no new flows come.
const settled = 10 * time.Second

// readDraining returns how far the gateway of the snapshot's node has got on its way out of
// service, and since when it is draining.
func readDraining(s role.Snapshot) (cable.Drain, time.Time) {
	n := role.Find[*corev1.Node](s, s.Node)
	if n == nil {
		return cable.InService, time.Time{}
	}
	asked, _ := members.ReadShare(n)
	standing := s.Standing.Drain
	if !asked.Drain && standing != cable.Draining {
		return standing, time.Time{}
	}
	now := s.Now
	since := s.Memory.DrainingSince // the report may be of an earlier drain, if none could be written since
	if since.IsZero() {
		since = now
	}
	if s.Standing.Standby() || freshBoot(s) {
		return cable.Drained, since // nobody uses it
	}
	if !asked.Drain || since.Equal(now) {
		return cable.Draining, since
	}
	flows := s.Flows
	idle := !s.Standing.Active || flows.Known && flows.Count == 0 && flows.At.Sub(since) >= settled
	if s.Memory.Drain == cable.Drained || idle || now.Sub(since) >= asked.Grace {
		return cable.Drained, since
	}
	return cable.Draining, since
}

// freshBoot reports whether the gateway is to be drained, and has carried nothing since its node
// has booted: see Memory.FreshBoot. Its report of what was before may be gone.
func freshBoot(s role.Snapshot) bool {
	n := role.Find[*corev1.Node](s, s.Node)
	return s.Memory.FreshBoot && n != nil && submarinerv1.ToBeDrained(n.Annotations)
}

// FlowsBetween returns the networks of other clusters, and the addresses of this node and its own
// pods. Connections of these are not counted: they end with their pods, and pass this gateway as
// long as it has cables.
func (m *Mesh) FlowsBetween() (remote, own []netip.Prefix) {
	for _, c := range m.Cables.Wanted {
		remote = append(remote, c.Subnets...)
	}
	slices.SortFunc(remote, netip.Prefix.Compare)
	self := m.Membership.Self
	if self.Pods.IsValid() {
		own = append(own, self.Pods)
	}
	for _, ip := range []netip.Addr{self.IP, m.Offer.Local.PodIP} {
		if ip.IsValid() {
			own = append(own, prefix.Host(ip))
		}
	}
	return slices.Compact(remote), own
}
