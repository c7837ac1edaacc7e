package report

import (
	"cmp"
	"encoding/json"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// Bounds of a Gateway. If it exceeds etcd's size limit, its status can no longer be updated:
// neither the other gateways nor the next agent of this node could read what has changed.
const (
	maxConnections  = 1280 << 10 // bytes of all connections in a report, as JSON: etcd takes 1.5 MiB by default
	maxMeasurements = 400        // bytes of the measurements of a connection, as JSON
	maxWithoutTexts = 900        // bytes of a connection as JSON without its texts: names, numbers and times
	fewSubnets      = 8          // of an endpoint, and fewSubnetText is the maximum length of one, in bytes
	fewSubnetText   = len("255.255.255.255/32")
)

// setFittingConnections sets the connections, so that the Gateway is small enough to be written. As
// long as there are too many bytes, it shortens endpoints, and then leaves connections out: by
// rank, and of the same rank the largest first.
func setFittingConnections(s *submarinerv1.GatewayStatus, cs []submarinerv1.Connection) {
	s.Connections = cs
	s.ConnectionsOmitted = 0
	s.ConnectionsOmittedDown = 0
	if fits(cs) {
		return
	}
	sizes := make([]int, len(cs))
	excess := -maxConnections
	order := make([]int, len(cs))
	for i := range cs {
		sizes[i] = sizeOf(cs[i])
		order[i] = i
		excess += sizes[i]
	}
	if excess <= 0 {
		return
	}
	first := func(a, b int) int { return cmp.Or(rank(cs[a])-rank(cs[b]), sizes[b]-sizes[a]) }
	slices.SortStableFunc(order, first)
	for _, i := range order {
		if excess <= 0 {
			return
		}
		cs[i].Endpoint = shortEndpoint(cs[i].Endpoint)
		excess -= sizes[i]
		sizes[i] = sizeOf(cs[i])
		excess += sizes[i]
	}
	slices.SortStableFunc(order, first)
	omitted := map[int]bool{}
	for _, i := range order {
		if excess <= 0 {
			break
		}
		omitted[i] = true
		excess -= sizes[i]
	}
	s.Connections = nil
	s.ConnectionsOmitted = len(omitted)
	for i, c := range cs {
		switch {
		case !omitted[i]:
			s.Connections = append(s.Connections, c)
		case c.Status != submarinerv1.Connected:
			s.ConnectionsOmittedDown++
		}
	}
}

// fits reports whether connections are small enough for a report, however their texts are written.
// Most gateways have so few that no JSON need be made to find out, which every pass of the loop
// would have to wait for.
func fits(cs []submarinerv1.Connection) bool {
	room := maxConnections
	for i := range cs {
		if room -= maxSize(&cs[i]); room < 0 {
			return false
		}
	}
	return true
}

// maxSize returns a number of bytes that sizeOf does not exceed.
func maxSize(c *submarinerv1.Connection) int {
	e := &c.Endpoint
	n := maxWithoutTexts + maxMeasurements
	n += textBytes(string(c.Status), c.StatusMessage, c.UsingIP, c.Driver, c.DesiredDriver, c.DriverReason, c.Device,
		c.Policy, c.PublicKey, c.MemberReason, c.Implementation, c.DetectedBy)
	n += textBytes(e.ClusterID, e.CableName, e.HealthCheckIP, e.Hostname, e.PrivateIP, e.PublicIP, e.Backend)
	n += textBytes(e.Subnets...) + textBytes(e.AllocatedIPs...) + textBytes(c.Attempts...)
	n += mapBytes(e.BackendConfig) + mapBytes(c.Settings) + mapBytes(c.PolicySettings)
	if b := c.Before; b != nil {
		n += textBytes(b.Driver, b.Device, b.Policy) + mapBytes(b.Settings) + mapBytes(b.PolicySettings)
	}
	if f := c.LastFailure; f != nil {
		n += textBytes(f.DetectedBy)
	}
	return n
}

// textBytes returns how many bytes texts have as JSON at most, with quotation marks and separators.
func textBytes(texts ...string) (n int) {
	for _, text := range texts {
		n += len(text) + len(`"",`)
		for i := range len(text) {
			switch b := text[i]; {
			case b < ' ', b >= 0x7f, b == '"', b == '\\', b == '<', b == '>', b == '&':
				n += len(`\u003c`) - 1
			}
		}
	}
	return n
}

func mapBytes(m map[string]string) (n int) {
	for k, v := range m {
		n += textBytes(k, v)
	}
	return n
}

// rank returns 3 if packets may take a connection, 2 if its cable is down, 1 if its cable works and
// carries no packets, and 0 if it has no cable. So a failure is not hidden by connections that wait
// for one, and the next agent of the node learns what each cable had.
func rank(c submarinerv1.Connection) int {
	switch {
	case c.Member != nil && *c.Member:
		return 3
	case c.Device == "":
		return 0
	case c.Status != submarinerv1.Connected:
		return 2
	}
	return 1
}

// sizeOf returns how many bytes a connection has in a report at most. It does not depend on the
// measurements, so that these do not change what is left out.
func sizeOf(c submarinerv1.Connection) int {
	c.ClearMeasurements()
	data, _ := json.Marshal(c) // never fails: it has texts, numbers and times only
	return len(data) + maxMeasurements
}

// shortEndpoint returns what identifies an endpoint, also on the devices of cables, and few of its
// networks.
func shortEndpoint(s submarinerv1.EndpointSpec) submarinerv1.EndpointSpec {
	octets := s.BackendConfig[submarinerv1.BackendOctets]
	s.BackendConfig = nil
	s.AllocatedIPs = nil
	if _, err := cable.ParseOctets(octets); err == nil {
		s.BackendConfig = map[string]string{submarinerv1.BackendOctets: octets}
	}
	subnets := []string{}
	for _, text := range s.Subnets {
		if len(text) <= fewSubnetText && len(subnets) < fewSubnets {
			subnets = append(subnets, text)
		}
	}
	s.Subnets = subnets
	return s
}
